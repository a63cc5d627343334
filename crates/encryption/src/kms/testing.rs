//! A plugin for tests.

use super::envelope::hashed;
use super::proto::*;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use setpoint_grpc::testing::{Reply, Script};
use setpoint_grpc::{Code, Status, frame};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// A call of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// `Status`.
    Status,
    /// `Encrypt`.
    Encrypt,
    /// `Decrypt`.
    Decrypt,
}

/// What the plugin does with a call.
#[derive(Debug, Clone, Default)]
pub enum Answer {
    /// Answers.
    #[default]
    Right,
    /// A gRPC status and its text.
    Fail(Code, &'static str),
    /// Never answers.
    Never,
    /// These bytes instead of a gRPC message with its head, and status OK.
    Raw(Vec<u8>),
}

/// What the plugin says of itself, and how it answers.
#[derive(Debug, Clone)]
pub struct Behavior {
    /// The key that encrypts.
    pub key_id: String,
    /// The key id in answers to `Encrypt`, if it is another one.
    pub encrypted_with: Option<String>,
    /// `v2`.
    pub version: String,
    /// `ok`.
    pub healthz: String,
    /// Annotations of encrypted seeds.
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// Replaces the ciphertext.
    pub ciphertext: Option<Vec<u8>>,
    /// Replaces the plaintext.
    pub plaintext: Option<Vec<u8>>,
    /// By call; others are answered.
    pub answers: BTreeMap<Method, Answer>,
}

/// A plugin over a Unix socket. "Encrypts" by adding a pad made of the key's id, so every instance
/// decrypts what any other has encrypted.
#[derive(Debug)]
pub struct KmsPlugin {
    path: PathBuf,
    state: Arc<State>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    behavior: Mutex<Behavior>,
    calls: Mutex<BTreeMap<Method, usize>>,
}

impl KmsPlugin {
    /// Listens on a socket, with a key. Dropping it closes everything.
    ///
    /// # Errors
    ///
    /// No socket.
    pub fn bind(path: &Path, key_id: &str) -> io::Result<Self> {
        let behavior = Behavior {
            key_id: key_id.to_owned(),
            encrypted_with: None,
            version: "v2".to_owned(),
            healthz: "ok".to_owned(),
            annotations: BTreeMap::from([("note.test.example".to_owned(), b"1".to_vec())]),
            ciphertext: None,
            plaintext: None,
            answers: BTreeMap::new(),
        };
        let (behavior, calls) = (Mutex::new(behavior), Mutex::default());
        let state = Arc::new(State { behavior, calls });
        let mut plugin = Self { path: path.to_owned(), state, tasks: JoinSet::new() };
        plugin.listen()?;
        Ok(plugin)
    }

    fn listen(&mut self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.path)?;
        let state = self.state.clone();
        let script = Script::new(move |path, message| state.answer(path, message));
        self.tasks.spawn(accept(listener, script));
        Ok(())
    }

    /// Closes the socket and all connections.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
        // It is there unless it was never bound.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Listens again.
    ///
    /// # Errors
    ///
    /// No socket.
    pub fn start(&mut self) -> io::Result<()> {
        self.listen()
    }

    /// Changes what it does.
    pub fn change(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.state.behavior.lock());
    }

    /// Changes how it answers a call.
    pub fn answer(&self, method: Method, answer: Answer) {
        self.change(|behavior| _ = behavior.answers.insert(method, answer));
    }

    /// How often it was called.
    pub fn calls(&self, method: Method) -> usize {
        self.state.calls.lock().get(&method).copied().unwrap_or(0)
    }
}

/// Adds the pad of a key, or removes it.
fn padded(key_id: &str, bytes: &[u8]) -> Vec<u8> {
    let pad = hashed(key_id).into_bytes();
    bytes.iter().zip(pad.iter().cycle()).map(|(byte, pad)| byte ^ pad).collect()
}

async fn accept(listener: UnixListener, script: Script) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(script.clone().serve(socket));
    }
}

impl State {
    fn answer(&self, path: &str, message: Bytes) -> Reply {
        let method = match path {
            STATUS => Method::Status,
            ENCRYPT => Method::Encrypt,
            DECRYPT => Method::Decrypt,
            _ => return Reply::Status(Status::new(Code::UNIMPLEMENTED, "unknown method")),
        };
        *self.calls.lock().entry(method).or_default() += 1;
        let behavior = self.behavior.lock().clone();
        match behavior.answers.get(&method).cloned().unwrap_or_default() {
            Answer::Fail(code, text) => Reply::Status(Status::new(code, text)),
            Answer::Never => Reply::Silence,
            Answer::Raw(bytes) => Reply::Body(bytes.into(), Status::ok()),
            Answer::Right => match right(method, message, &behavior) {
                Ok(frame) => Reply::Body(frame, Status::ok()),
                Err(text) => Reply::Status(Status::new(Code::INVALID_ARGUMENT, text)),
            },
        }
    }
}

fn right(method: Method, message: Bytes, behavior: &Behavior) -> Result<Bytes, &'static str> {
    let malformed = |_| "malformed";
    Ok(match method {
        Method::Status => frame(&StatusResponse {
            version: behavior.version.clone(),
            healthz: behavior.healthz.clone(),
            key_id: behavior.key_id.clone(),
        }),
        Method::Encrypt => {
            let request = EncryptRequest::decode(message).map_err(malformed)?;
            let key_id = behavior.encrypted_with.as_ref().unwrap_or(&behavior.key_id);
            let ciphertext = padded(key_id, &request.plaintext);
            frame(&EncryptResponse {
                ciphertext: behavior.ciphertext.clone().unwrap_or(ciphertext).into(),
                key_id: key_id.clone(),
                annotations: behavior.annotations.clone(),
            })
        }
        Method::Decrypt => {
            let request = DecryptRequest::decode(message).map_err(malformed)?;
            if !request.annotations.contains_key("note.test.example") {
                return Err("the annotation is missing");
            }
            let plaintext = padded(&request.key_id, &request.ciphertext);
            frame(&DecryptResponse { plaintext: behavior.plaintext.clone().unwrap_or(plaintext) })
        }
    })
}
