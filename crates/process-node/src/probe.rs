//! Probes and hooks: a command, a request or a connection.

use crate::guard::GroupGuard;
use crate::shared::CommandEnvironment;
use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;

/// Maximum bytes of output that a failed probe shows.
const OUTPUT_BYTES_MAX: u64 = 10 << 10;
/// The time for hooks without one: they end with the grace period.
const HOOK_TIME_MAX: Duration = Duration::from_secs(600);

/// What a probe or hook does.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http: Option<&'a HTTPGetAction>,
    tcp: Option<&'a TCPSocketAction>,
    sleep: Option<i64>,
}

impl<'a> From<&'a Probe> for Handler<'a> {
    fn from(probe: &'a Probe) -> Self {
        Self {
            exec: probe.exec.as_ref(),
            http: probe.http_get.as_ref(),
            tcp: probe.tcp_socket.as_ref(),
            sleep: None,
        }
    }
}

impl<'a> From<&'a LifecycleHandler> for Handler<'a> {
    fn from(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http: hook.http_get.as_ref(),
            tcp: hook.tcp_socket.as_ref(),
            sleep: hook.sleep.as_ref().map(|sleep| sleep.seconds),
        }
    }
}

/// Where handlers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) container: &'a Container,
    pub(crate) surroundings: &'a CommandEnvironment,
    pub(crate) ip: Ipv4Addr,
}

impl Target<'_> {
    /// Runs a probe once.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub(crate) async fn probe(&self, probe: &Probe) -> Result<(), String> {
        let seconds = u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1);
        self.run(probe.into(), Duration::from_secs(seconds)).await
    }

    /// Runs a hook.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub(crate) async fn hook(&self, hook: &LifecycleHandler) -> Result<(), String> {
        self.run(hook.into(), HOOK_TIME_MAX).await
    }

    async fn run(&self, handler: Handler<'_>, time: Duration) -> Result<(), String> {
        let run = async {
            if let Some(exec) = handler.exec {
                let command = exec.command.as_deref().unwrap_or_default();
                return match self.surroundings.output(command).await {
                    Ok((0, _)) => Ok(()),
                    Ok((_, output)) => Err(output),
                    Err(error) => Err(error.to_string()),
                };
            }
            if let Some(http) = handler.http {
                return self.get(http).await;
            }
            if let Some(tcp) = handler.tcp {
                let host = self.host(tcp.host.as_deref());
                let port = self.port(&tcp.port)?;
                let connected = TcpStream::connect((&*host, port)).await;
                return match connected {
                    Ok(_) => Ok(()),
                    Err(error) => Err(format!("dial tcp {host}:{port}: {error}")),
                };
            }
            match handler.sleep {
                Some(seconds) => {
                    let seconds = u64::try_from(seconds).unwrap_or_default();
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok(())
                }
                None => Err("this kind of probe is not supported on a process node".to_owned()),
            }
        };
        match tokio::time::timeout(time, run).await {
            Ok(ended) => ended,
            Err(_) => Err(format!("timed out after {}s", time.as_secs())),
        }
    }

    fn host(&self, host: Option<&str>) -> String {
        match host.filter(|host| !host.is_empty()) {
            Some(host) => host.to_owned(),
            None => self.ip.to_string(),
        }
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_deref() == Some(name));
                named.map(|port| port.container_port).or_else(|| name.parse().ok())
            }
        };
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.ok_or_else(|| format!("unknown port {port:?}"))
    }

    async fn get(&self, get: &HTTPGetAction) -> Result<(), String> {
        if get.scheme.as_deref() == Some("HTTPS") {
            return Err("HTTPS probes are not supported on a process node".to_owned());
        }
        let (host, port) = (self.host(get.host.as_deref()), self.port(&get.port)?);
        let path = get.path.as_deref().unwrap_or("/");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = format!("http://{host}:{port}{slash}{path}");
        let failed = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
        let socket = TcpStream::connect((&*host, port)).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
            .await
            .map_err(|error| failed(&error))?;
        let request = http::Request::get(format!("{slash}{path}")).body(Empty::<Bytes>::new());
        let mut request = request.map_err(|error| failed(&error))?;
        let authority = format!("{host}:{port}");
        *request.headers_mut() = headers(get, &authority).map_err(|error| failed(&error))?;
        let broken = |error: hyper::Error| match error.is_incomplete_message() {
            true => failed(&"EOF"),
            false => failed(&error),
        };
        // The inner result is the answer's, the outer one the connection's.
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok::<_, hyper::Error>(match status.is_success() || status.is_redirection() {
                true => Ok(()),
                false => {
                    drop(answer.into_body().frame().await);
                    Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
                }
            })
        };
        tokio::pin!(answer);
        let ended = tokio::select! {
            // Cancel safe: the connection is dropped with it.
            biased;
            answer = &mut answer => return answer.unwrap_or_else(|error| Err(broken(error))),
            ended = connection => ended,
        };
        // A server that closes after its answer, as those of HTTP/1.0 do, has given one.
        match (answer.await, ended) {
            (Ok(answer), _) => answer,
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(broken(error)),
        }
    }
}

/// The headers of a request: those of the probe, and others where it has none. It may choose its
/// host, as for servers of several names.
fn headers(get: &HTTPGetAction, authority: &str) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::new();
    for header in get.http_headers.iter().flatten() {
        let name = HeaderName::try_from(header.name.as_str())?;
        let value = HeaderValue::try_from(header.value.as_str())?;
        // A request has one host.
        match name == HOST {
            true => _ = headers.insert(name, value),
            false => _ = headers.append(name, value),
        }
    }
    let others = [(HOST, authority), (USER_AGENT, "kube-probe/1.36"), (ACCEPT, "*/*")];
    for (name, value) in others {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::try_from(value)?);
        }
    }
    Ok(headers)
}

impl CommandEnvironment {
    /// A command in these surroundings and a process group of its own, without its standard
    /// streams. `words` has a program.
    pub(crate) fn command(&self, words: &[String]) -> tokio::process::Command {
        let mut command = self.bare_command(words);
        command.process_group(0);
        command
    }

    /// The same in the process group of this program.
    pub(crate) fn bare_command(&self, words: &[String]) -> tokio::process::Command {
        let words: Vec<String> = words.iter().map(|word| self.mounts.map(word)).collect();
        let mut command = tokio::process::Command::new(words.first().map_or("", |word| word));
        command.args(words.get(1..).unwrap_or_default());
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.folder).kill_on_drop(true);
        if let Some(user) = self.user {
            command.uid(user);
        }
        if let Some(group) = self.group {
            command.gid(group);
        }
        command
    }

    /// Runs a command; returns its exit code and its output.
    async fn output(&self, words: &[String]) -> std::io::Result<(i32, String)> {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut group = GroupGuard(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = async {
            let (mut output, mut errors) = tokio::join!(head(stdout), head(stderr));
            output.append(&mut errors);
            output.truncate(OUTPUT_BYTES_MAX as usize);
            output
        };
        // What it started has its output too, so it ends with it.
        let wait = async {
            let status = child.wait().await;
            group.finish();
            status
        };
        let (output, status) = tokio::join!(read, wait);
        Ok((code(status?), String::from_utf8_lossy(&output).into_owned()))
    }
}

/// The first bytes of an output, which is read to its end: a command that cannot write what it has
/// to say ends by SIGPIPE.
async fn head(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut head = Vec::new();
    if let Some(mut from) = from {
        _ = (&mut from).take(OUTPUT_BYTES_MAX).read_to_end(&mut head).await;
        _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    head
}

/// The exit code of a process; that of a shell if a signal ended it.
pub(crate) fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Mounts;
    use serde_json::{Value, json};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    fn surroundings() -> CommandEnvironment {
        CommandEnvironment {
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            folder: ".".into(),
            mounts: Mounts::default(),
            user: None,
            group: None,
        }
    }

    /// The command got SIGPIPE after 10 KiB.
    #[tokio::test]
    async fn a_command_may_say_more_than_is_shown() {
        let container = Container::default();
        let surroundings = surroundings();
        let target =
            Target { container: &container, surroundings: &surroundings, ip: [0; 4].into() };
        let script = "head -c 300000 /dev/zero | tr '\\0' x && \
                      head -c 300000 /dev/zero | tr '\\0' y >&2 && exit $0";
        let command = |code: &str| json!({"exec": {"command": ["sh", "-e", "-c", script, code]}});
        let probe = |code: &str| {
            let mut probe: Probe = serde_json::from_value(command(code)).unwrap();
            probe.timeout_seconds = Some(60);
            probe
        };
        assert_eq!(target.probe(&probe("0")).await, Ok(()));
        let output = target.probe(&probe("3")).await.unwrap_err();
        assert_eq!(output, "x".repeat(10 << 10));
        let hook: LifecycleHandler = serde_json::from_value(command("0")).unwrap();
        assert_eq!(target.hook(&hook).await, Ok(()));
    }

    /// What a probe says about a server that sends `answer` and closes the connection.
    async fn probed(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            socket.write_all(answer.as_bytes()).await.unwrap();
        };
        let get = HTTPGetAction { port: IntOrString::Int(port.into()), ..HTTPGetAction::default() };
        let target = Target {
            container: &Container::default(),
            surroundings: &surroundings(),
            ip: Ipv4Addr::LOCALHOST,
        };
        let ((), outcome) = tokio::join!(serve, target.get(&get));
        outcome.map_err(|error| error.replace(&port.to_string(), "PORT"))
    }

    #[tokio::test]
    async fn a_server_may_close_the_connection_after_its_answer() {
        for answer in [
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ] {
            assert_eq!(probed(answer).await, Ok(()), "{answer}");
        }
        for (answer, error) in [
            (
                "HTTP/1.0 503 Service Unavailable\r\n\r\nlater",
                "HTTP probe failed with statuscode: 503",
            ),
            ("", "Get \"http://127.0.0.1:PORT/\": EOF"),
        ] {
            assert_eq!(probed(answer).await, Err(error.to_owned()), "{answer}");
        }
    }

    fn of(given: Value) -> Vec<String> {
        let get = serde_json::from_value(json!({"port": 80, "httpHeaders": given})).unwrap();
        let headers = headers(&get, "127.64.0.1:80").unwrap();
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    /// A probe with a host had two, which servers refuse.
    #[test]
    fn a_probe_has_one_host_which_it_may_choose() {
        assert_eq!(
            of(json!([])),
            ["host: 127.64.0.1:80", "user-agent: kube-probe/1.36", "accept: */*"]
        );
        let own = json!([
            {"name": "Host", "value": "example.com"}, {"name": "X-A", "value": "1"},
            {"name": "X-A", "value": "2"}, {"name": "User-Agent", "value": "me"},
        ]);
        assert_eq!(
            of(own),
            ["host: example.com", "x-a: 1", "x-a: 2", "user-agent: me", "accept: */*"]
        );
    }
}
