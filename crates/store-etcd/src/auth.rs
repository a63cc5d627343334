//! The token that etcd gives for a name and a password.

use crate::{
    connection::{CallError, Connection},
    grpc::frame,
    options::EtcdOptions,
    proto::{AuthenticateAnswer, AuthenticateCall, path},
};
use http::HeaderValue;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use tokio::sync::Semaphore;

/// Gets a token when one is needed, once for all who wait, and again when it was refused.
pub(crate) struct Auth {
    token: Mutex<Option<HeaderValue>>,
    /// One asks, the others wait: checking a password costs etcd a tenth of a second.
    asking: Semaphore,
}

impl Auth {
    pub(crate) fn new() -> Self {
        Self { token: Mutex::new(None), asking: Semaphore::new(1) }
    }

    /// The token to send; `None` without a user. A failure means that nothing else was sent.
    pub(crate) async fn token(
        &self,
        connection: &Connection,
        options: &EtcdOptions,
    ) -> Result<Option<HeaderValue>, CallError> {
        let Some((name, password)) = &options.user else { return Ok(None) };
        if let Some(token) = self.present() {
            return Ok(Some(token));
        }
        let turn = self.asking.acquire().await;
        if let Some(token) = self.present() {
            return Ok(Some(token));
        }
        let question = AuthenticateCall { name: name.clone(), password: password.clone() };
        let sent = AtomicBool::new(false);
        let silence = options.attempt_timeout;
        let answer: AuthenticateAnswer =
            connection.call(path::AUTHENTICATE, None, frame(&question), &sent, silence).await?;
        let mut token = HeaderValue::from_str(&answer.token)
            .map_err(|error| CallError::NotSent(format!("the token: {error}")))?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token.clone());
        drop(turn);
        Ok(Some(token))
    }

    fn present(&self) -> Option<HeaderValue> {
        self.token.lock().clone()
    }

    /// This one does not work any more: the next who needs one gets another.
    pub(crate) fn refused(&self, refused: Option<&HeaderValue>) {
        let mut token = self.token.lock();
        if token.as_ref() == refused {
            *token = None;
        }
    }
}
