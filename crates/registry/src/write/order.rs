//! The order of the deletes of one collection.
//!
//! Deletes of a collection commit concurrently, but are reviewed one after the other, as in
//! kube-apiserver, so that the first refusal leaves all later objects as they are.
use setpoint_object::ApiError;
use std::sync::Arc;
use tokio::sync::watch;

/// How far the deletes of one collection are.
#[derive(Debug)]
pub(super) struct Order(watch::Sender<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Objects whose deletes may commit: the first so many of the collection.
    n_passed: usize,
    /// Whether a delete has failed: none after it begins.
    is_over: bool,
}

impl Order {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::default()))
    }
    /// The place of the object at an index.
    pub(super) fn place(self: &Arc<Self>, idx: usize) -> Place {
        Place { order: self.clone(), idx }
    }
}

/// The place of one object.
#[derive(Debug, Clone)]
pub(super) struct Place {
    order: Arc<Order>,
    idx: usize,
}
impl Place {
    /// Waits until the object before has passed. Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// A delete before has failed. Its error is the answer, and this one is not shown.
    pub(super) async fn begin(&self) -> Result<(), ApiError> {
        let mut progress = self.order.0.subscribe();
        let is_next = |progress: &Progress| progress.is_over || progress.n_passed >= self.idx;
        match progress.wait_for(is_next).await {
            Ok(progress) if progress.is_over && progress.n_passed <= self.idx => Err(skipped()),
            Ok(_) => Ok(()),
            Err(error) => Err(ApiError::internal(error)),
        }
    }
    /// Lets the next object begin.
    pub(super) fn pass(&self) {
        self.order.0.send_if_modified(|progress| {
            let is_news = progress.n_passed <= self.idx;
            progress.n_passed = progress.n_passed.max(self.idx + 1);
            is_news
        });
    }
    /// Ends the order: no object after this one begins.
    pub(super) fn fail(&self) {
        self.order.0.send_modify(|progress| progress.is_over = true);
    }
}

fn skipped() -> ApiError {
    ApiError::internal("the delete of an object before this one has failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn objects_begin_one_after_the_other_until_one_fails() {
        let order = Order::new();
        let begins =
            |idx: usize| order.place(idx).begin().now_or_never().map(|begun| begun.is_ok());
        assert_eq!([begins(0), begins(1)], [Some(true), None]);
        order.place(0).pass();
        assert_eq!([begins(0), begins(1), begins(2)], [Some(true), Some(true), None]);
        order.place(1).fail();
        assert_eq!([begins(0), begins(1), begins(2)], [Some(true), Some(false), Some(false)]);
    }
}
