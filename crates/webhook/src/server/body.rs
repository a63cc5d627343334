//! Reads request bodies within limits.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use setpoint_object::status::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total size of all bodies that are being read or processed: 256 MiB, and as much for those of
/// conversions. Beyond it, a request waits before its body is read until others have ended, each
/// within [`REQUEST_MAX`](super::REQUEST_MAX).
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

    /// Reads a body of at most `bytes_max`; puts its share of the budget in `held`.
    ///
    /// The share is taken before anything is read: bodies of which each holds a part and waits for
    /// the rest would wait for each other. A body of unknown length takes the largest share, and
    /// gives back what it did not need.
    pub(super) async fn read<B>(
        &self,
        mut body: B,
        bytes_max: usize,
        held: &mut Held,
    ) -> Result<Bytes, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let length = body.size_hint().exact();
        let share =
            length.map_or(bytes_max, |length| usize::try_from(length).unwrap_or(usize::MAX));
        if share > bytes_max {
            return Err(ApiError::too_large(bytes_max));
        }
        self.hold(share, held).await;
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| ApiError::bad_request(format!("read the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + rest.len() + data.len() > bytes_max {
                return Err(ApiError::too_large(bytes_max));
            }
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
        let whole = if rest.is_empty() { first } else { rest.freeze() };
        held.shrink(whole.len());
        Ok(whole)
    }

    async fn hold(&self, n_bytes: usize, held: &mut Held) {
        // A body's length fits into `u32`. The semaphore is never closed.
        let Ok(n_bytes) = u32::try_from(n_bytes) else { return };
        held.0 = self.0.clone().acquire_many_owned(n_bytes).await.ok();
    }
}

impl Held {
    /// Gives back what a body of this length does not need.
    fn shrink(&mut self, n_bytes: usize) {
        if let Some(held) = &mut self.0 {
            let surplus = held.num_permits().saturating_sub(n_bytes);
            drop(held.split(surplus));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhooks::BODY_BYTES_MAX;
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
        let read = budget.read(pieces(&[3, 0, 4]), 7, &mut first).now_or_never().unwrap();
        assert_eq!(read.unwrap().len(), 7);
        let mut waiting = Box::pin(budget.read(pieces(&[2, 2]), 7, &mut second));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(waiting.as_mut().now_or_never().unwrap().unwrap().len(), 4);
        drop(waiting);
        assert_eq!(budget.0.available_permits(), 6, "the body was shorter than it might have been");
        drop(second);
        assert_eq!(budget.0.available_permits(), 10);
    }

    /// Each held a part of the budget and waited for the rest, until all ran out of time.
    #[test]
    fn bodies_that_arrive_together_do_not_wait_for_each_other() {
        let budget = Budget::of(10);
        let (mut first, mut second) = (Held::default(), Held::default());
        let (sender, frames) = futures::channel::mpsc::unbounded::<Result<_, std::io::Error>>();
        let frame = |size: usize| Ok(http_body::Frame::data(Bytes::from(vec![b'x'; size])));
        let mut slow = Box::pin(budget.read(StreamBody::new(frames), 7, &mut first));
        sender.unbounded_send(frame(4)).unwrap();
        assert!(slow.as_mut().now_or_never().is_none());
        let mut other = Box::pin(budget.read(pieces(&[4, 3]), 7, &mut second));
        assert!(other.as_mut().now_or_never().is_none());
        sender.unbounded_send(frame(3)).unwrap();
        drop(sender);
        assert_eq!(slow.as_mut().now_or_never().unwrap().unwrap().len(), 7);
        drop(slow);
        drop(first);
        assert_eq!(other.as_mut().now_or_never().unwrap().unwrap().len(), 7);
    }

    #[test]
    fn body_of_one_frame_is_not_copied() {
        let (budget, whole) = (Budget::new(), Bytes::from_static(b"whole"));
        let mut held = Held::default();
        let read =
            budget.read(Full::new(whole.clone()), 5, &mut held).now_or_never().unwrap().unwrap();
        assert_eq!(read.as_ptr(), whole.as_ptr());
    }

    #[test]
    fn limit_applies_to_all_pieces_whk_3() {
        let read = |sizes: &[usize]| {
            let (budget, mut held) = (Budget::new(), Held::default());
            let read = budget.read(pieces(sizes), BODY_BYTES_MAX, &mut held);
            let read = read.now_or_never().unwrap();
            read.map(|body| body.len()).map_err(|error| error.code())
        };
        assert_eq!(read(&[BODY_BYTES_MAX - 1, 1]), Ok(BODY_BYTES_MAX));
        assert_eq!(read(&[BODY_BYTES_MAX - 1, 1, 1]), Err(413));
        assert_eq!(read(&[BODY_BYTES_MAX + 1]), Err(413));
        assert_eq!(read(&[]), Ok(0));
    }
}
