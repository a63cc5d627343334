//! What is said over a connection once HTTP has let go of it.

use futures::future::BoxFuture;
use http::Response;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// A future that waits in the extensions of a response and talks over the upgraded connection. A
/// server takes it out and runs it as a task of the connection, which lasts until it ends. In
/// process there is no connection and nobody takes it out.
#[derive(Clone)]
pub struct Conversation(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Conversation {
    /// A conversation, for the extensions of an answer that switches protocols.
    pub fn new(conversation: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::pin(conversation)))))
    }

    /// Takes it out of a response.
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
