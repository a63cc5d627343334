//! Limits the memory of objects that lists convert for themselves.
//!
//! A list of stored objects holds references, and so does a list from a view. A list that converts
//! its objects itself (a namespace or a page of a resource whose view is too large, a page of the
//! store, a version without a view) holds copies. One list may hold as many bytes as a view, and
//! all lists in progress together as many again.
use super::{BATCH_BYTES_MAX, BATCHES_MAX};
use setpoint_object::{ApiError, GroupVersionKind, Reason};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of stored objects that a list converts at once: those of concurrent calls.
pub(crate) const CHUNK_BYTES_MAX: usize = BATCHES_MAX * BATCH_BYTES_MAX;

/// The bytes held by all lists in progress.
#[derive(Debug)]
pub(crate) struct ConvertedBytes {
    held: AtomicUsize,
    /// Of one list, and of all.
    max: usize,
}
impl ConvertedBytes {
    /// Nothing is held yet.
    pub(crate) fn new(max: usize) -> Self {
        Self { held: AtomicUsize::new(0), max }
    }
}

/// The bytes held by one list. They are released on drop: from then on the answer counts them.
#[derive(Debug)]
pub(crate) struct ListBytes<'a> {
    all: &'a ConvertedBytes,
    n: usize,
}
impl<'a> ListBytes<'a> {
    /// A list that holds nothing yet.
    pub(crate) fn of(all: &'a ConvertedBytes) -> Self {
        Self { all, n: 0 }
    }
    /// Counts more bytes.
    ///
    /// # Errors
    ///
    /// 503 if the list is too large; 429 if it is not, but all lists together are.
    pub(crate) fn add(&mut self, n: usize, kind: &GroupVersionKind) -> Result<(), ApiError> {
        if n == 0 {
            return Ok(());
        }
        self.n += n;
        let held = self.all.held.fetch_add(n, Ordering::Relaxed) + n;
        let max = self.all.max;
        if self.n > max {
            let text = format!(
                "the objects of {kind} in this list take more than {max} bytes when they are converted: list them with a limit"
            );
            return Err(ApiError::new(503, Reason::ServiceUnavailable, text));
        }
        if held > max {
            let text = "lists convert too many objects at present: try again later";
            return Err(ApiError::too_many_requests(text, 1));
        }
        Ok(())
    }
}
impl Drop for ListBytes<'_> {
    fn drop(&mut self) {
        self.all.held.fetch_sub(self.n, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_list_and_all_lists_have_a_limit() {
        let kind = GroupVersionKind::new("ex.io", "v1", "Foo");
        let all = ConvertedBytes::new(100);
        let code = |result: Result<(), ApiError>| result.map_err(|error| error.code());
        let (mut first, mut second) = (ListBytes::of(&all), ListBytes::of(&all));
        assert_eq!(code(first.add(60, &kind)), Ok(()));
        assert_eq!(code(second.add(60, &kind)), Err(429));
        drop(second);
        assert_eq!(code(first.add(40, &kind)), Ok(()));
        assert_eq!(code(first.add(1, &kind)), Err(503));
        drop(first);
        assert_eq!(code(ListBytes::of(&all).add(100, &kind)), Ok(()));
        assert_eq!(all.held.load(Ordering::Relaxed), 0);
    }
}
