//! The use of a connection after an HTTP upgrade.

use futures::future::BoxFuture;
use http::Response;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// A future that uses the upgraded connection, in the extensions of a response. A server takes it
/// out and runs it as a task of the connection, which lasts until the future ends. For in-process
/// calls there is no connection, and it is not taken out.
#[derive(Clone)]
pub struct Conversation(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Conversation {
    /// A conversation for the extensions of a 101 response.
    pub fn new(conversation: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::pin(conversation)))))
    }

    /// Takes the future out of a response.
    pub fn take<B>(response: &mut Response<B>) -> Option<BoxFuture<'static, ()>> {
        let conversation = response.extensions_mut().remove::<Self>()?;
        conversation.0.lock().take()
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conversation")
    }
}
