//! An OpenID Connect issuer: discovery, keys, tokens.

use super::process::{Answer, Certificate, Place, Program, Role};
use bytes::Bytes;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::object::time::Clock;
use setpoint::registry::jwt::{KeySet, SigningKey};
use std::fs;
use std::sync::Arc;

/// The keys of the process, oldest first; the last one signs. They outlive it in a file.
struct Keys {
    role: Role,
    pems: Vec<String>,
}

impl Keys {
    fn of(role: Role) -> Self {
        let stored = fs::read(role.folder.join("keys")).ok();
        let pems = stored.map(|stored| serde_json::from_slice(&stored).unwrap());
        let mut keys = Self { role, pems: pems.unwrap_or_default() };
        if keys.pems.is_empty() {
            keys.add();
        }
        keys
    }

    fn add(&mut self) {
        self.pems.push(SigningKey::generate_from_system().unwrap().to_pem().unwrap());
        self.store();
    }

    fn store(&self) {
        fs::write(self.role.folder.join("keys"), json!(self.pems).to_string()).unwrap();
    }

    fn set(&self) -> KeySet {
        let key = |pem: &String| SigningKey::from_pem(pem.as_bytes()).unwrap();
        let (last, others) = self.pems.split_last().unwrap();
        KeySet::new(key(last))
            .verify_also(others.iter().map(|pem| key(pem).verifying_key().clone()))
    }

    fn answer(&mut self, path: &str, body: &Bytes) -> Option<String> {
        let url = &self.role.url;
        match path {
            "/.well-known/openid-configuration" => {
                Some(json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
            }
            "/keys" => Some(self.set().jwks().to_string()),
            "/token" => self.set().sign(&serde_json::from_slice(body).ok()?).ok(),
            // A new key signs, and the former ones are published still.
            "/rotate" => {
                self.add();
                Some(String::new())
            }
            // The former ones are not published any more.
            "/withdraw" => {
                self.pems.drain(..self.pems.len() - 1);
                self.store();
                Some(String::new())
            }
            _ => None,
        }
    }
}

/// The program of the process.
pub(super) fn program(role: Role) -> Arc<Program> {
    let keys = Mutex::new(Keys::of(role));
    Arc::new(move |path, body| {
        let answer = match keys.lock().answer(&path, &body) {
            Some(body) => Answer::Now(200, body),
            None => Answer::Now(404, String::new()),
        };
        futures::future::ready(answer).boxed()
    })
}

/// An issuer's process, from outside.
pub(super) struct Issuer(pub(super) Place);

impl Issuer {
    pub(super) fn start() -> Self {
        let mut place = Place::new("issuer");
        place.start(Certificate::Good);
        Self(place)
    }

    /// A token for the audience `setpoint` that its present key signs, with more or other claims.
    /// `null` removes a claim.
    pub(super) async fn token(&self, more: Value) -> String {
        let now = Clock::wall().now().0.as_secs();
        let mut claims = json!({"iss": self.0.url(), "aud": "setpoint", "exp": now + 600});
        for (claim, value) in more.as_object().unwrap() {
            claims[claim] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.0.post("/token", &claims).await
    }

    pub(super) async fn rotate(&self) {
        self.0.post("/rotate", &Value::Null).await;
    }

    pub(super) async fn withdraw(&self) {
        self.0.post("/withdraw", &Value::Null).await;
    }
}
