//! The header `Authorization` of a kubeconfig's user.
//!
//! # Theory
//!
//! Names, passwords and tokens in a kubeconfig never change. The others do, and are read here
//! within bounds; kube-client would read them on the thread that sends the request, whatever they
//! are.
//!
//! | a user has | read | again |
//! |---|---|---|
//! | `tokenFile` | at most 1 MiB | 50 s later; if that fails, the earlier token stays |
//! | `exec` | as [`exec`](super::exec) says | before the token expires |
//!
//! While one request reads again, others use the token that is still there.

use super::RemoteError;
use super::exec::{Exec, ExecError};
use super::kubeconfig::KUBECONFIG_BYTES_MAX;
use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderValue, Request, Response};
use kube_client::Config;
use kube_client::client::{Body, ConfigExt as _};
use kube_client::config::AuthInfo;
use parking_lot::Mutex;
use setpoint_small_file::{SmallFileError, read, read_async};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::util::{BoxCloneSyncService, ServiceExt as _};
use tower::{BoxError, Layer as _, Service, service_fn};

/// How long the token of a file is used: 50 s, as in client-go.
const FILE_PERIOD: Duration = Duration::from_secs(50);

/// Adds what a kubeconfig says about its user to a request.
type Authorized<A> = BoxCloneSyncService<Request<Body>, Response<A>, BoxError>;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error(transparent)]
    File(#[from] SmallFileError),
    #[error("use the token in {}", path.display())]
    Malformed { path: PathBuf, source: InvalidHeaderValue },
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Where tokens come from.
#[derive(Debug)]
enum Origin {
    File(PathBuf),
    Exec(Box<Exec>),
}

#[derive(Debug)]
struct Known {
    header: Option<HeaderValue>,
    /// When it is read again; `None`: never.
    until: Option<Instant>,
}

/// A token that changes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Token(Arc<(Origin, Mutex<Known>)>);

impl Token {
    fn new(origin: Origin, known: Known) -> Self {
        Self(Arc::new((origin, Mutex::new(known))))
    }

    /// The token of a user's file, if it is what shows who the user is. Blocks.
    pub(super) fn of_file(user: &mut AuthInfo) -> Result<Option<Self>, TokenError> {
        let Some(path) = user.token_file.take().filter(|_| !has_constant(user)) else {
            return Ok(None);
        };
        user.exec = None;
        let path = PathBuf::from(path);
        let header = header_of(&path, &read(&path, KUBECONFIG_BYTES_MAX)?)?;
        let until = Some(Instant::now() + FILE_PERIOD);
        Ok(Some(Self::new(Origin::File(path), Known { header: Some(header), until })))
    }

    /// The token of a user's command, if it is what shows who the user is. `None` also if the
    /// command has only a certificate, which is then the user's.
    pub(super) async fn of_exec(user: &mut AuthInfo) -> Result<Option<Self>, TokenError> {
        let Some(exec) = user.exec.take().filter(|_| !has_constant(user)) else { return Ok(None) };
        let exec = Exec::new(exec);
        let mut ran = exec.run().await?;
        if let Some((certificate, key)) = ran.certificate.take() {
            user.client_certificate_data = Some(certificate);
            user.client_key_data = Some(key.into());
        }
        Ok(ran.header.is_some().then(|| {
            let known = Known { header: ran.header, until: ran.until };
            Self::new(Origin::Exec(exec.into()), known)
        }))
    }

    /// The same, from the first request on: certificates that the command prints are not used.
    pub(super) fn of_exec_later(user: &mut AuthInfo) -> Option<Self> {
        let exec = Exec::new(user.exec.take().filter(|_| !has_constant(user))?);
        Some(Self::new(Origin::Exec(exec.into()), Known { header: None, until: None }))
    }

    /// The header. Reads the token again if it is time.
    async fn header(&self) -> Result<HeaderValue, TokenError> {
        let (origin, known) = &*self.0;
        let now = Instant::now();
        {
            let mut known = known.lock();
            let is_old = known.until.is_some_and(|until| until <= now);
            if let Some(header) = known.header.clone() {
                if !is_old {
                    return Ok(header);
                }
                // Other requests do not read it, too.
                known.until = Some(now + FILE_PERIOD);
            }
        }
        let earlier = || known.lock().header.clone();
        match origin {
            Origin::File(path) => {
                let bytes = read_async(path, KUBECONFIG_BYTES_MAX).await;
                let fresh = bytes.map_err(TokenError::from).and_then(|it| header_of(path, &it));
                match (fresh, earlier()) {
                    (Ok(header), _) => {
                        known.lock().header = Some(header.clone());
                        Ok(header)
                    }
                    // As in client-go: files of tokens may be removed after the start.
                    (Err(_), Some(header)) => Ok(header),
                    (Err(error), None) => Err(error),
                }
            }
            Origin::Exec(exec) => {
                let ran = exec.run().await;
                let mut known = known.lock();
                match ran {
                    Ok(ran) => {
                        let header = ran.header.ok_or(ExecError::NoToken)?;
                        *known = Known { header: Some(header.clone()), until: ran.until };
                        Ok(header)
                    }
                    Err(error) => {
                        known.until = Some(now);
                        Err(error.into())
                    }
                }
            }
        }
    }
}

/// Whether a user has something that does not change, which comes first.
fn has_constant(user: &AuthInfo) -> bool {
    user.auth_provider.is_some()
        || user.token.is_some()
        || user.username.is_some() && user.password.is_some()
}

fn header_of(path: &Path, token: &[u8]) -> Result<HeaderValue, TokenError> {
    let token = String::from_utf8_lossy(token);
    let token = token.trim();
    if token.is_empty() {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is empty");
        return Err(SmallFileError::Read { path: path.to_owned(), source }.into());
    }
    bearer(token).map_err(|source| TokenError::Malformed { path: path.to_owned(), source })
}

/// The header of a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A service that sends requests as the user of a configuration. `token`: in place of what the
/// configuration says.
pub(super) fn authorized<S, A>(
    config: &Config,
    token: Option<Token>,
    send: S,
) -> Result<Authorized<A>, kube_client::Error>
where
    S: Service<Request<Body>, Response = Response<A>, Error = BoxError>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    A: 'static,
{
    let send = config.extra_headers_layer()?.layer(send);
    if let Some(token) = token {
        return Ok(Authorized::new(service_fn(move |mut request: Request<Body>| {
            let (token, send) = (token.clone(), send.clone());
            async move {
                request.headers_mut().insert(AUTHORIZATION, token.header().await?);
                send.oneshot(request).await
            }
        })));
    }
    Ok(match config.auth_layer()? {
        Some(authorization) => Authorized::new(authorization.layer(send)),
        None => Authorized::new(send),
    })
}

/// The error of a kubeconfig whose token cannot be read.
pub(super) fn refused(path: &Path, error: TokenError) -> RemoteError {
    match error {
        TokenError::File(source) => RemoteError::File { path: path.to_owned(), source },
        source => RemoteError::Token { path: path.to_owned(), source: Box::new(source) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(token: &Token) -> String {
        token.header().await.unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_of_a_token_is_read_again_and_within_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let text = || Some(path.to_str().unwrap().to_owned());
        let mut user = AuthInfo { token_file: text(), ..AuthInfo::default() };
        let token = Token::of_file(&mut user).unwrap().unwrap();
        assert!(user.token_file.is_none());
        std::fs::write(&path, "two").unwrap();
        assert_eq!(shown(&token).await, "Bearer one");
        tokio::time::advance(FILE_PERIOD).await;
        assert_eq!(shown(&token).await, "Bearer two");
        // What cannot be used leaves the token as it is.
        for (content, expected) in [
            ("x".repeat(KUBECONFIG_BYTES_MAX + 1), "Bearer two"),
            (" ".to_owned(), "Bearer two"),
            ("three".to_owned(), "Bearer three"),
        ] {
            std::fs::write(&path, content).unwrap();
            tokio::time::advance(FILE_PERIOD).await;
            assert_eq!(shown(&token).await, expected);
        }
        let mut user = AuthInfo { token_file: Some("/dev/zero".to_owned()), ..AuthInfo::default() };
        let refused = Token::of_file(&mut user).unwrap_err();
        assert!(matches!(refused, TokenError::File(SmallFileError::TooLong { .. })), "{refused}");
        let mut user = AuthInfo { token: Some("a".into()), token_file: text(), ..user };
        assert!(Token::of_file(&mut user).unwrap().is_none(), "a token in the kubeconfig is first");
    }
}
