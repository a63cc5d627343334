//! Reads request bodies within limits.

use crate::webhooks::BODY_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use setpoint_object::status::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total size of all bodies that are being read or processed: 256 MiB. Beyond it, reading waits for
/// other requests to end, each within [`REQUEST_MAX`](super::REQUEST_MAX).
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The memory budget that bodies share.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// A body's share of the budget, returned when dropped.
#[derive(Debug, Default)]
pub(super) struct Held(Option<OwnedSemaphorePermit>);

impl Budget {
    pub(super) fn new() -> Self {
        Self::of(BODIES_BYTES_MAX)
    }

    fn of(n_bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(n_bytes)))
    }

    /// Reads a body; adds its share of the budget to `held`.
    pub(super) async fn read<B>(&self, mut body: B, held: &mut Held) -> Result<Bytes, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| ApiError::bad_request(format!("read the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + rest.len() + data.len() > BODY_BYTES_MAX {
                return Err(ApiError::too_large(BODY_BYTES_MAX));
            }
            self.hold(data.len(), held).await;
            // Most bodies are one frame, which needs no copy.
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&std::mem::take(&mut first));
                }
                rest.extend_from_slice(&data);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    async fn hold(&self, n_bytes: usize, held: &mut Held) {
        // A frame is no longer than a body, which fits into `u32`. The semaphore is never closed.
        let Ok(n_bytes) = u32::try_from(n_bytes) else { return };
        let Ok(permit) = self.0.clone().acquire_many_owned(n_bytes).await else { return };
        match &mut held.0 {
            Some(held) => held.merge(permit),
            None => held.0 = Some(permit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use http_body_util::{Full, StreamBody};

    /// A body in pieces.
    fn pieces(sizes: &[usize]) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
        let frame = |size: &usize| Ok(http_body::Frame::data(Bytes::from(vec![b'x'; *size])));
        StreamBody::new(futures::stream::iter(sizes.iter().map(frame).collect::<Vec<_>>()))
    }

    #[test]
    fn bodies_wait_for_budget_until_others_are_answered() {
        let budget = Budget::of(10);
        let (mut first, mut second) = (Held::default(), Held::default());
        let read = budget.read(pieces(&[3, 0, 4]), &mut first).now_or_never().unwrap();
        assert_eq!(read.unwrap().len(), 7);
        let mut waiting = Box::pin(budget.read(pieces(&[2, 2]), &mut second));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(waiting.as_mut().now_or_never().unwrap().unwrap().len(), 4);
        drop(waiting);
        drop(second);
        assert_eq!(budget.0.available_permits(), 10);
    }

    #[test]
    fn body_of_one_frame_is_not_copied() {
        let (budget, whole) = (Budget::new(), Bytes::from_static(b"whole"));
        let mut held = Held::default();
        let read =
            budget.read(Full::new(whole.clone()), &mut held).now_or_never().unwrap().unwrap();
        assert_eq!(read.as_ptr(), whole.as_ptr());
    }

    #[test]
    fn limit_applies_to_all_pieces_whk_3() {
        let read = |sizes: &[usize]| {
            let read =
                Budget::new().read(pieces(sizes), &mut Held::default()).now_or_never().unwrap();
            read.map(|body| body.len()).map_err(|error| error.code())
        };
        assert_eq!(read(&[BODY_BYTES_MAX - 1, 1]), Ok(BODY_BYTES_MAX));
        assert_eq!(read(&[BODY_BYTES_MAX - 1, 1, 1]), Err(413));
        assert_eq!(read(&[BODY_BYTES_MAX + 1]), Err(413));
        assert_eq!(read(&[]), Ok(0));
    }
}
