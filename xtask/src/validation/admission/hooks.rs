//! A server that webhooks call, and which keeps what it was asked.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest review that is read.
const BODY_BYTES_MAX: usize = 8 << 20;

/// What one webhook answers, always the same.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// An AdmissionReview, which gets the uid of the request unless it has one; or a text.
    pub(super) body: Value,
}

/// What was asked in the name of a case.
#[derive(Debug, Default)]
struct Asked {
    replies: Vec<Reply>,
    /// Whose turn it is: ours is 0, the original's 1.
    side: usize,
    reviews: [Vec<Value>; 2],
}

/// The server. It ends with the process.
#[derive(Debug)]
pub(super) struct Hooks {
    /// `https://127.0.0.1:PORT`.
    pub(super) url: String,
    /// The certificate, in base64.
    pub(super) bundle: String,
    /// By the name of the case.
    cases: Mutex<HashMap<String, Asked>>,
}

impl Hooks {
    /// Starts it.
    pub(super) fn start() -> Result<Arc<Self>> {
        let (certificate, key) = certificate()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(&certificate)?],
                PrivateKeyDer::from_pem_slice(&key)?,
            )?;
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let hooks = Arc::new(Self {
            url: format!("https://{}", listener.local_addr()?),
            bundle: STANDARD.encode(certificate),
            cases: Mutex::default(),
        });
        let own = hooks.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (hooks, config) = (own.clone(), config.clone());
                // A client that ends its connection ends its thread.
                std::thread::spawn(move || hooks.serve(stream, config));
            }
        });
        Ok(hooks)
    }

    fn cases(&self) -> MutexGuard<'_, HashMap<String, Asked>> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A case begins, whose webhooks have these answers by their numbers.
    pub(super) fn begin(&self, case: &str, replies: &[Reply]) {
        let asked = Asked { replies: replies.to_vec(), ..Asked::default() };
        self.cases().insert(case.to_owned(), asked);
    }

    /// From now on, it is one server that asks for a case.
    pub(super) fn turn(&self, case: &str, side: usize) {
        if let Some(asked) = self.cases().get_mut(case) {
            asked.side = side;
        }
    }

    /// What both servers have asked since the last call.
    pub(super) fn take(&self, case: &str) -> [Vec<Value>; 2] {
        self.cases()
            .get_mut(case)
            .map(|asked| std::mem::take(&mut asked.reviews))
            .unwrap_or_default()
    }

    /// A case is over.
    pub(super) fn end(&self, case: &str) {
        self.cases().remove(case);
    }

    fn serve(&self, stream: TcpStream, config: Arc<ServerConfig>) -> Result<()> {
        stream.set_nodelay(true)?;
        let tls = StreamOwned::new(ServerConnection::new(config)?, stream);
        let mut stream = BufReader::new(tls);
        loop {
            let mut request = String::new();
            if stream.read_line(&mut request)? == 0 {
                return Ok(());
            }
            let mut length = 0;
            loop {
                let mut header = String::new();
                stream.read_line(&mut header)?;
                let Some((name, value)) = header.split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse()?;
                }
            }
            ensure!(length <= BODY_BYTES_MAX, "a review is too long");
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            let path = request.split(' ').nth(1).unwrap_or_default();
            let reply = self.reply(path, serde_json::from_slice(&body)?);
            let text = reply.body.as_str().map_or_else(|| reply.body.to_string(), str::to_owned);
            let head = format!(
                "HTTP/1.1 {} Answer\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                reply.code,
                text.len()
            );
            stream.get_mut().write_all(format!("{head}{text}").as_bytes())?;
            stream.get_mut().flush()?;
        }
    }

    /// The answer to a review at `/CASE/NUMBER?timeout=…`.
    fn reply(&self, path: &str, review: Value) -> Reply {
        let path = path.split('?').next().unwrap_or_default();
        let mut parts = path.trim_start_matches('/').split('/');
        let (case, number) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let uid = review["request"]["uid"].clone();
        let mut cases = self.cases();
        let asked = cases.get_mut(case);
        let reply = asked.and_then(|asked| {
            let number: usize = number.parse().ok()?;
            asked.reviews[asked.side].push(json!({"webhook": number, "review": review}));
            asked.replies.get(number).cloned()
        });
        let mut reply = reply.unwrap_or(Reply { code: 404, body: "no such webhook".into() });
        if let Some(response) = reply.body.get_mut("response").and_then(Value::as_object_mut) {
            response.entry("uid").or_insert(uid);
        }
        reply
    }
}

/// A text in base64.
pub(super) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A certificate of this machine's own address, and its key.
fn certificate() -> Result<(Vec<u8>, Vec<u8>)> {
    let folder = std::env::temp_dir().join(format!("setpoint-hooks-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (certificate, key) = (folder.join("hook.crt"), folder.join("hook.key"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=hook", "-addext", "subjectAltName=IP:127.0.0.1"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    command.arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    let output = command.output().context("start openssl")?;
    ensure!(output.status.success(), "no certificate: {}", String::from_utf8_lossy(&output.stderr));
    let both = (std::fs::read(&certificate)?, std::fs::read(&key)?);
    std::fs::remove_dir_all(&folder)?;
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_kept_by_whose_turn_it_is_and_answered_with_their_uid() {
        let hooks = Hooks { url: String::new(), bundle: String::new(), cases: Mutex::default() };
        let body = json!({"response": {"allowed": true}});
        hooks.begin("a", &[Reply { code: 200, body }]);
        let review = json!({"request": {"uid": "x"}});
        assert_eq!(hooks.reply("/a/0?timeout=1s", review.clone()).body["response"]["uid"], "x");
        hooks.turn("a", 1);
        hooks.reply("/a/0", review.clone());
        hooks.reply("/a/0", review.clone());
        let [ours, original] = hooks.take("a");
        assert_eq!((ours.len(), original.len()), (1, 2));
        assert!(hooks.take("a").iter().all(Vec::is_empty));
        hooks.end("a");
        assert_eq!(hooks.reply("/a/0", review).code, 404);
    }
}
