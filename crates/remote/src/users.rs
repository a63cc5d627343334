//! The users of a kubeconfig, by the servers that they are for.

use super::authorization::{Token, authorized, refused};
use super::{RemoteError, kubeconfig};
use futures::FutureExt as _;
use http::{Request, Response, Uri};
use kube_client::Config;
use kube_client::client::{Body, ConfigExt as _};
use setpoint_webhook_client::Credential;
use std::collections::HashMap;
use std::path::Path;
use tower::util::ServiceExt as _;
use tower::{BoxError, service_fn};

/// What servers are shown, by a kubeconfig whose users are named as the servers.
///
/// | name of a user | servers |
/// |---|---|
/// | `host:port`, `name.namespace.svc:port` | that one |
/// | `host` | that one, on port 443 |
/// | `*.rest`, `*.rest:port` | those with any first labels before `rest` |
/// | `*` | all others |
/// | that of the current context | all, if there is no `*` |
///
/// The rules are those of kube-apiserver's `kubeConfigFile` for admission webhooks.
#[derive(Debug, Default)]
pub struct Users {
    by_name: HashMap<String, Credential>,
    /// The user of the current context.
    current: Option<Credential>,
}

impl Users {
    /// Reads a kubeconfig. Tokens in files are read again, and commands run when a server is
    /// called; certificates are not read again. Call it within a tokio runtime. Blocks.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be read, or a user in it cannot be used.
    pub fn open(path: &Path) -> Result<Self, RemoteError> {
        let kubeconfig = kubeconfig::open(path)?;
        let mut by_name = HashMap::new();
        for named in kubeconfig.auth_infos {
            let mut config = Config::new(Uri::from_static("https://localhost/"));
            config.auth_info = named.auth_info.unwrap_or_default();
            kubeconfig::take_certificate(path, &mut config.auth_info)?;
            let token = Token::of_file(&mut config.auth_info);
            let token = token.map_err(|error| refused(path, error))?;
            let token = token.or_else(|| Token::of_exec_later(&mut config.auth_info));
            let made = credential(&config, token).map_err(|source| RemoteError::Client {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
            by_name.insert(named.name, made);
        }
        let current = kubeconfig.current_context.unwrap_or_default();
        let context = kubeconfig.contexts.into_iter().find(|context| context.name == current);
        let user = context.and_then(|context| context.context?.user);
        let current = user.and_then(|user| by_name.get(&user).cloned());
        Ok(Self { by_name, current })
    }

    /// The credential for a server, `host:port`. `None`: it is shown nothing.
    pub fn for_server(&self, server: &str) -> Option<Credential> {
        let short = server.strip_suffix(":443").and_then(|host| self.named(host));
        let found = self.named(server).or(short).or_else(|| self.by_name.get("*"));
        found.or(self.current.as_ref()).cloned()
    }

    /// The user of this name, or with the fewest first labels replaced by `*`.
    fn named(&self, name: &str) -> Option<&Credential> {
        let rests = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
        std::iter::once(name.to_owned()).chain(rests).find_map(|name| self.by_name.get(&name))
    }
}

/// What a configuration of a client shows its server.
fn credential(config: &Config, token: Option<Token>) -> Result<Credential, kube_client::Error> {
    let user = &config.auth_info;
    let has_certificate = user.client_certificate_data.is_some() || user.client_key_data.is_some();
    // It also reads the certificates of the system, which takes a while.
    let tls = has_certificate.then(|| config.rustls_client_config()).transpose()?;
    let certificate =
        tls.map(|tls| tls.client_auth_cert_resolver.clone()).filter(|one| one.has_certs());
    let answer = service_fn(|request: Request<Body>| async move {
        let (head, _) = request.into_parts();
        let mut answer = Response::new(());
        *answer.headers_mut() = head.headers;
        Ok::<_, BoxError>(answer)
    });
    // Answers a request with the headers that it would be sent with.
    let headers = authorized(config, token, answer)?;
    Ok(Credential::new(certificate, move || {
        let headers = headers.clone();
        async move {
            let answer = headers.oneshot(Request::new(Body::empty())).await;
            answer.map(|answer| answer.into_parts().0.headers).map_err(|error| error.to_string())
        }
        .boxed()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: own
contexts:
- {name: own, context: {cluster: c, user: current}}
users:
- {name: "hook.shop.svc:443", user: {token: exact}}
- {name: hook.shop.svc, user: {token: without port}}
- {name: "*.shop.svc", user: {token: shop}}
- {name: "*.svc:8443", user: {token: all on 8443}}
- {name: current, user: {username: a, password: b}}
"#;

    /// The header `Authorization` for a server.
    async fn shown(users: &Users, server: &str) -> String {
        let Some(credential) = users.for_server(server) else { return "nothing".to_owned() };
        let headers = credential.headers().await.unwrap();
        headers.get("authorization").unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn users_are_named_as_the_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let users = Users::open(&path).unwrap();
        for (server, expected) in [
            ("hook.shop.svc:443", "Bearer exact"),
            ("other.shop.svc:443", "Bearer shop"),
            ("hook.shop.svc:8443", "Bearer all on 8443"),
            ("hook.shop.svc:80", "Basic YTpi"),
            ("shop.svc:443", "Basic YTpi"),
            ("example.io:443", "Basic YTpi"),
        ] {
            assert_eq!(shown(&users, server).await, expected, "{server}");
        }
        std::fs::write(&path, KUBECONFIG.replace("name: current,", "name: \"*\",")).unwrap();
        let users = Users::open(&path).unwrap();
        assert_eq!(shown(&users, "example.io:443").await, "Basic YTpi");
        std::fs::write(&path, KUBECONFIG.replace("current-context: own", "")).unwrap();
        let users = Users::open(&path).unwrap();
        assert_eq!(shown(&users, "example.io:443").await, "nothing");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_command_runs_when_its_server_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = r#"
users:
- name: a.example:443
  user: {exec: {command: /bin/sh, args: [-c, 'echo "{status: {token: t}}"'], interactiveMode: Never}}
- name: b.example:443
  user: {exec: {command: /bin/sh, args: [-c, 'exec cat /dev/zero'], interactiveMode: Never}}
"#;
        std::fs::write(&path, text).unwrap();
        let users = Users::open(&path).unwrap();
        assert_eq!(shown(&users, "a.example:443").await, "Bearer t");
        let endless = users.for_server("b.example:443").unwrap().headers().await.unwrap_err();
        assert!(endless.contains("more than 1048576 bytes"), "{endless}");
    }
}
