//! Commands that print credentials: `exec` of a kubeconfig's user.
//!
//! A command gets `KUBERNETES_EXEC_INFO` and prints an `ExecCredential` with a token, or with a
//! certificate and its key. It may run for [`EXEC_MAX`] and print [`OUTPUT_BYTES_MAX`]; then it is
//! killed.

use super::authorization::bearer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube_client::config::{ExecConfig, ExecInteractiveMode};
use serde_json::{Value, json};
use setpoint_object::time::{Clock, Timestamp};
use std::collections::HashMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::Instant;

/// Maximum time of a command: a minute.
pub const EXEC_MAX: Duration = Duration::from_secs(60);
/// Maximum bytes that a command prints: 1 MiB.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Tokens are renewed this long before they expire: a minute.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);

/// Why a command has no credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The kubeconfig names no command, or no cluster for it.
    #[error("exec: {0} is missing")]
    Incomplete(&'static str),
    /// The command cannot be run.
    #[error("exec: run {command:?}")]
    Run {
        /// The command.
        command: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The command did not end within [`EXEC_MAX`].
    #[error("exec: {command:?} did not end within {} s", EXEC_MAX.as_secs())]
    Slow {
        /// The command.
        command: String,
    },
    /// The command printed more than [`OUTPUT_BYTES_MAX`].
    #[error("exec: {command:?} printed more than {OUTPUT_BYTES_MAX} bytes")]
    TooLong {
        /// The command.
        command: String,
    },
    /// The command failed.
    #[error("exec: {command:?} failed: {status}")]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// What the command printed is no `ExecCredential`. It is not shown, as it may be a secret.
    #[error("exec: what {command:?} printed is no ExecCredential")]
    Malformed {
        /// The command.
        command: String,
    },
    /// The command printed no token.
    #[error("exec: the command printed no token")]
    NoToken,
}

/// A command of a kubeconfig.
#[derive(Debug)]
pub(super) struct Exec {
    config: ExecConfig,
    /// The wall clock, in which credentials expire.
    clock: Clock,
}

/// What a command has printed.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) header: Option<HeaderValue>,
    /// When to run it again; `None`: never.
    pub(super) until: Option<Instant>,
    /// A certificate and its key, as in a kubeconfig: PEM in base64.
    pub(super) certificate: Option<(String, String)>,
}

impl Exec {
    pub(super) fn new(config: ExecConfig) -> Self {
        Self { config, clock: Clock::wall() }
    }

    /// Runs the command. Dropping the future kills it.
    pub(super) async fn run(&self) -> Result<Ran, ExecError> {
        let name = self.config.command.clone().ok_or(ExecError::Incomplete("the command"))?;
        let command = || name.clone();
        let failed = |source| ExecError::Run { command: command(), source };
        let mut child = self.command(&name)?.spawn().map_err(failed)?;
        let Some(stdout) = child.stdout.take() else {
            return Err(failed(io::Error::other("it has no output")));
        };
        let ended = async {
            let mut printed = Vec::new();
            stdout.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut printed).await?;
            match printed.len() > OUTPUT_BYTES_MAX {
                true => Ok(None),
                false => child.wait().await.map(|status| Some((status, printed))),
            }
        };
        let (status, printed) = match tokio::time::timeout(EXEC_MAX, ended).await {
            Err(_) => return Err(ExecError::Slow { command: command() }),
            Ok(Err(source)) => return Err(failed(source)),
            Ok(Ok(None)) => return Err(ExecError::TooLong { command: command() }),
            Ok(Ok(Some(ended))) => ended,
        };
        if !status.success() {
            return Err(ExecError::Failed { command: command(), status });
        }
        self.read(&printed).ok_or_else(|| ExecError::Malformed { command: command() })
    }

    fn command(&self, name: &str) -> Result<Command, ExecError> {
        let config = &self.config;
        let mut command = Command::new(name);
        command.args(config.args.iter().flatten()).kill_on_drop(true).stdout(Stdio::piped());
        let pair = |env: &HashMap<String, String>| {
            Some((env.get("name")?.clone(), env.get("value")?.clone()))
        };
        command.envs(config.env.iter().flatten().filter_map(pair));
        let is_interactive = config.interactive_mode != Some(ExecInteractiveMode::Never);
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        let mut spec = json!({"interactive": is_interactive});
        if config.provide_cluster_info {
            let cluster = config.cluster.as_ref().ok_or(ExecError::Incomplete("the cluster"))?;
            spec["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
        }
        let info =
            json!({"apiVersion": config.api_version, "kind": "ExecCredential", "spec": spec});
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        for name in config.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// What an `ExecCredential` in JSON or YAML has; `None` if it is none.
    fn read(&self, printed: &[u8]) -> Option<Ran> {
        let printed: Value = serde_saphyr::from_slice(printed).ok()?;
        let text = |member: &str| match &printed["status"][member] {
            Value::Null => Some(None),
            Value::String(text) => Some(Some(text.as_str())),
            _ => None,
        };
        let header = text("token")?.map(|token| bearer(token.trim())).transpose().ok()?;
        let certificate = text("clientCertificateData")?.zip(text("clientKeyData")?);
        if header.is_none() && certificate.is_none() {
            return None;
        }
        let until = match text("expirationTimestamp")? {
            None => None,
            Some(expires) => {
                let left = Timestamp::parse(expires)?.0.saturating_sub(self.clock.now().0);
                Instant::now().checked_add(left.saturating_sub(RENEWED_BEFORE))
            }
        };
        let encoded = |pem: &str| STANDARD.encode(pem);
        let certificate = certificate.map(|(chain, key)| (encoded(chain), encoded(key)));
        Some(Ran { header, until, certificate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell's script.
    fn exec(script: &str) -> Exec {
        Exec::new(ExecConfig {
            command: Some("/bin/sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..serde_json::from_value(json!({})).unwrap()
        })
    }

    #[tokio::test]
    async fn a_command_prints_a_token_or_a_certificate() {
        let script = r#"case $KUBERNETES_EXEC_INFO in *'"interactive":false'*) ;; *) exit 1;; esac
            echo '{"status": {"token": "abc", "expirationTimestamp": "2000-01-01T00:00:00Z"}}'"#;
        let ran = exec(script).run().await.unwrap();
        assert_eq!(ran.header.unwrap(), "Bearer abc");
        assert!(ran.until.unwrap() <= Instant::now(), "it has expired");
        let yaml = "printf 'status:\\n  clientCertificateData: a\\n  clientKeyData: b\\n'";
        let ran = exec(yaml).run().await.unwrap();
        assert_eq!(ran.certificate, Some((STANDARD.encode("a"), STANDARD.encode("b"))));
        assert!(ran.header.is_none() && ran.until.is_none());
    }

    #[tokio::test]
    async fn a_command_without_credentials_is_an_error() {
        for script in
            ["echo secret", "echo '{\"status\": {}}'", "echo '{\"status\": {\"token\": 1}}'"]
        {
            let error = exec(script).run().await.unwrap_err();
            assert!(matches!(error, ExecError::Malformed { .. }), "{error}");
            assert!(!error.to_string().contains("secret"));
        }
        let error = exec("exit 3").run().await.unwrap_err();
        assert!(matches!(error, ExecError::Failed { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_prints_without_an_end_is_killed() {
        let error = exec("exec cat /dev/zero").run().await.unwrap_err();
        assert!(matches!(error, ExecError::TooLong { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_end_is_killed() {
        let error = exec("exec sleep 1000").run().await.unwrap_err();
        assert!(matches!(error, ExecError::Slow { .. }), "{error}");
    }
}
