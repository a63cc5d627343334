//! Tokens of Keystone, and the endpoint of Neutron in its catalogue.
//!
//! A [`Session`] is a token with what it is for. It is renewed [`RENEW_BEFORE`] its end, and when
//! Neutron refuses it. One login is made at a time; others wait for its result.

use super::http::{Answer, Call, Dial, HttpError, Sender, Server};
use http::header::HeaderValue;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use setpoint::object::time::Timestamp;
use setpoint::prelude::Clock;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long before its end a token is renewed: two minutes, more than one request takes.
pub const RENEW_BEFORE: Duration = Duration::from_secs(120);

/// A password or a secret. It is not shown.
#[derive(Clone)]
pub enum Secret {
    /// The text itself.
    Text(String),
    /// The first line of a file, which is read at each login.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    async fn read(&self) -> Result<String, HttpError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => Ok(text.lines().next().unwrap_or_default().to_owned()),
                Err(source) => Err(HttpError::Secret { path: path.display().to_string(), source }),
            },
        }
    }
}

/// What Keystone checks.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A user's password, for one project.
    Password {
        /// The user's name.
        user: String,
        /// The name of the user's domain.
        user_domain: String,
        /// The password.
        password: Secret,
        /// The project's name.
        project: String,
        /// The name of the project's domain.
        project_domain: String,
    },
    /// An application credential. It belongs to a project.
    Application {
        /// Its id.
        id: String,
        /// Its secret.
        secret: Secret,
    },
}

/// Where Neutron is, and as whom it is called.
#[derive(Debug, Clone)]
pub enum Access {
    /// Neutron without Keystone: `auth_strategy = noauth`.
    NoAuth {
        /// Neutron's URL.
        endpoint: String,
        /// The project that owns what is created.
        project: String,
    },
    /// Tokens of Keystone.
    Keystone {
        /// Keystone's URL, with or without `/v3`.
        url: String,
        /// What Keystone checks.
        credential: Credential,
        /// The region; `None`: the first in the catalogue.
        region: Option<String>,
        /// The kind of endpoint: `public`, `internal` or `admin`.
        interface: String,
        /// Neutron's URL, in place of the catalogue's.
        endpoint: Option<String>,
    },
}

/// A token, and what it is for.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) token: Option<HeaderValue>,
    pub(super) neutron: Server,
    pub(super) project: String,
    /// `None`: it does not end.
    ends: Option<Timestamp>,
}

/// The sessions of one access.
pub(super) struct Sessions {
    access: Access,
    dial: Dial,
    clock: Clock,
    keystone: Option<Server>,
    /// Held during a login, so that there is one at a time. Asynchronous, because it is held across
    /// an `await`.
    current: Mutex<Option<Arc<Session>>>,
}

impl Sessions {
    /// # Errors
    ///
    /// A URL or the CA file cannot be used.
    pub(super) fn new(access: Access, dial: Dial, clock: Clock) -> Result<Self, HttpError> {
        let (keystone, current) = match &access {
            Access::NoAuth { endpoint, project } => {
                let neutron = Server::new(&dial, endpoint, "/v2.0")?;
                let session =
                    Session { token: None, neutron, project: project.clone(), ends: None };
                (None, Some(Arc::new(session)))
            }
            Access::Keystone { url, .. } => (Some(Server::new(&dial, url, "/v3")?), None),
        };
        Ok(Self { access, dial, clock, keystone, current: Mutex::new(current) })
    }

    /// A session that is not about to end. `refused`: one that Neutron no longer accepts.
    ///
    /// # Errors
    ///
    /// Keystone does not answer or refuses the credential, or the catalogue lacks Neutron.
    pub(super) async fn get(
        &self,
        sender: &Sender,
        refused: Option<&Arc<Session>>,
    ) -> Result<Arc<Session>, HttpError> {
        let mut current = self.current.lock().await;
        let now = self.clock.now();
        let is_usable = |session: &Arc<Session>| {
            session.ends.is_none_or(|ends| ends.since(now) > RENEW_BEFORE)
                && refused.is_none_or(|refused| !Arc::ptr_eq(refused, session))
        };
        if let Some(session) = current.as_ref().filter(|session| is_usable(session)) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.log_in(sender, current.as_deref()).await?);
        *current = Some(session.clone());
        Ok(session)
    }

    async fn log_in(
        &self,
        sender: &Sender,
        before: Option<&Session>,
    ) -> Result<Session, HttpError> {
        let (Access::Keystone { url, credential, region, interface, endpoint }, Some(keystone)) =
            (&self.access, &self.keystone)
        else {
            // Neutron without Keystone answers 401: it has Keystone after all.
            return before.cloned().ok_or_else(|| HttpError::Url(String::new()));
        };
        let body = identity(credential).await?;
        let call = Call {
            method: Method::POST,
            path: "/auth/tokens",
            body: Some(&body),
            // A second token does no harm.
            may_repeat: true,
        };
        let answer = sender.send(keystone, None, &call).await?;
        let malformed =
            |what: &str| HttpError::Malformed { url: url.clone(), what: what.to_owned() };
        let token = answer.headers.get("x-subject-token");
        let mut token = token.ok_or_else(|| malformed("no X-Subject-Token"))?.clone();
        token.set_sensitive(true);
        let details = &answer.json["token"];
        let ends = details["expires_at"].as_str().and_then(Timestamp::parse);
        let ends = ends.ok_or_else(|| malformed("no expires_at"))?;
        let project = details["project"]["id"].as_str();
        let project = project.ok_or_else(|| malformed("the token is not for a project"))?;
        let found = match endpoint {
            Some(endpoint) => Some(endpoint.as_str()),
            None => network_endpoint(&answer, interface, region.as_deref()),
        };
        let found = found.ok_or_else(|| HttpError::NoEndpoint {
            interface: interface.clone(),
            region: region.iter().map(|region| format!(" in region {region}")).collect(),
        })?;
        let neutron = match before.filter(|before| before.neutron.is_at(found)) {
            Some(before) => before.neutron.clone(),
            None => Server::new(&self.dial, found, "/v2.0")?,
        };
        tracing::debug!(project, endpoint = found, "logged in");
        Ok(Session { token: Some(token), neutron, project: project.to_owned(), ends: Some(ends) })
    }
}

/// Whether an error says that the token is not accepted.
pub(super) fn is_unauthorized(error: &HttpError) -> bool {
    error.refusal().is_some_and(|(status, _)| status == StatusCode::UNAUTHORIZED)
}

/// The body of a login.
async fn identity(credential: &Credential) -> Result<Value, HttpError> {
    Ok(match credential {
        Credential::Password { user, user_domain, password, project, project_domain } => {
            let user = json!({
                "name": user,
                "domain": { "name": user_domain },
                "password": password.read().await?,
            });
            json!({ "auth": {
                "identity": { "methods": ["password"], "password": { "user": user } },
                "scope": { "project": { "name": project, "domain": { "name": project_domain } } },
            } })
        }
        Credential::Application { id, secret } => {
            let credential = json!({ "id": id, "secret": secret.read().await? });
            let method = "application_credential";
            json!({ "auth": { "identity": { "methods": [method], method: credential } } })
        }
    })
}

/// The URL of the first endpoint of Neutron with this interface, in this region.
fn network_endpoint<'a>(
    answer: &'a Answer,
    interface: &str,
    region: Option<&str>,
) -> Option<&'a str> {
    let services = answer.json["token"]["catalog"].as_array()?;
    let networks = services.iter().filter(|service| service["type"] == "network");
    let mut endpoints = networks.filter_map(|service| service["endpoints"].as_array()).flatten();
    let found = endpoints.find(|endpoint| {
        let is_in = |region| endpoint["region"] == region || endpoint["region_id"] == region;
        endpoint["interface"] == interface && region.is_none_or(is_in)
    });
    found?["url"].as_str()
}
