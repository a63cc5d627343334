//! Tokens of etcd's password authentication.

use crate::{
    connection::{CallError, Connection},
    options::EtcdOptions,
    proto::{AuthenticateAnswer, AuthenticateCall, path},
};
use http::HeaderValue;
use parking_lot::Mutex;
use setpoint_grpc::frame;
use std::sync::atomic::AtomicBool;
use tokio::sync::Semaphore;

/// Requests a token when one is needed, once for all waiting callers, and a new one after a
/// refusal.
pub(crate) struct Auth {
    token: Mutex<Option<HeaderValue>>,
    /// One caller requests, the others wait: checking a password takes etcd a tenth of a second.
    asking: Semaphore,
}

impl Auth {
    pub(crate) fn new() -> Self {
        Self { token: Mutex::new(None), asking: Semaphore::new(1) }
    }

    /// The token to send; `None` without a user. If it fails, nothing else was sent.
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

    /// Drops a token that was refused, so that the next caller requests a new one.
    pub(crate) fn refused(&self, refused: Option<&HeaderValue>) {
        let mut token = self.token.lock();
        if token.as_ref() == refused {
            *token = None;
        }
    }
}
