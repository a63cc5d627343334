//! Tokens that another program signs.

use super::{ACCOUNTS, World, claims, key};
use crate::plane::with_person_of;
use futures::future::{BoxFuture, FutureExt as _, ready};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::registry::jwt::{KeyRing, KeySet};
use setpoint::registry::{ServiceAccountTokens, TokenSigner, TokenSignerError};
use std::sync::Arc;
use std::time::Duration;

/// A program with the key of this number, which tells the keys of these numbers.
#[derive(Debug)]
struct Program {
    ring: KeyRing,
    signs_with: Mutex<u8>,
    tells: Mutex<Vec<u8>>,
}

impl Program {
    fn new() -> Arc<Self> {
        let new = Self {
            ring: KeyRing::from_system(),
            signs_with: Mutex::new(1),
            tells: Mutex::new(vec![1]),
        };
        new.tell();
        Arc::new(new)
    }

    fn tell(&self) {
        let keys = self.tells.lock().iter().map(|n| key(*n).verifying_key().clone()).collect();
        self.ring.set(KeySet::of_signer(keys, vec![key(9).verifying_key().clone()]));
    }
}

impl TokenSigner for Program {
    fn sign(&self, claims: Value) -> BoxFuture<'_, Result<String, TokenSignerError>> {
        let signed = match *self.signs_with.lock() {
            0 => Err("while signing jwt".into()),
            n => KeySet::new(key(n)).sign(&claims).map_err(TokenSignerError::from),
        };
        ready(signed).boxed()
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), TokenSignerError>> {
        self.tell();
        ready(Ok(())).boxed()
    }

    fn max_expiration(&self) -> Duration {
        Duration::from_secs(1000)
    }

    fn keys_age_max(&self) -> Duration {
        Duration::from_secs(7)
    }
}

async fn with_program(test: impl AsyncFnOnce(World, Arc<Program>)) {
    let program = Program::new();
    let tokens = ServiceAccountTokens::new().keys(program.ring.clone());
    let tokens = tokens.signed_by(program.clone());
    let plane = ControlPlane::builder().simulated(0).service_account_tokens(tokens).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| test(world, program).await).await;
}

#[tokio::test(start_paused = true)]
async fn another_program_signs_and_its_new_keys_are_asked_for() {
    with_program(async |world, program| {
        world.account("a").await;
        let answer = world.request("a", json!({"expirationSeconds": 5000})).await;
        assert_eq!(answer.body["spec"]["expirationSeconds"], 1000);
        let token = answer.body["status"]["token"].as_str().unwrap();
        let of_token = claims(token);
        assert_eq!(of_token["exp"].as_i64().unwrap() - of_token["iat"].as_i64().unwrap(), 1000);
        assert!(world.whoami(token).await.is_ok());

        *program.signs_with.lock() = 2;
        let token = world.token("a", json!({})).await;
        assert_eq!(world.whoami(&token).await, Err(401));
        program.tells.lock().push(2);
        assert!(world.whoami(&token).await.is_ok());

        *program.signs_with.lock() = 0;
        let refused = world.request("a", json!({})).await;
        let why = "Internal error occurred: failed to generate token: while signing jwt";
        assert_eq!(refused.error(), (500, why));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_is_shortened_before_it_marks_an_injected_token() {
    with_program(async |world, _| {
        world.account("a").await;
        world.pod("p", "a").await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
        let spec = json!({"expirationSeconds": 3607, "boundObjectRef": pod});
        // The lifetime that is requested is shortened first, so that it is none of an injected one.
        let of_token = claims(&world.token("a", spec).await);
        assert_eq!(of_token["exp"].as_i64().unwrap() - of_token["iat"].as_i64().unwrap(), 1000);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_not_published_verify_and_others_may_be_kept_as_long_as_it_says() {
    with_program(async |world, program| {
        world.account("a").await;
        let found = world.admin(Method::GET, "/openid/v1/jwks", Value::Null).await;
        assert_eq!(found.headers["cache-control"], "public, max-age=7");
        let ids: Vec<_> = found.body["keys"].as_array().unwrap().iter().collect();
        assert_eq!(ids, [&key(1).verifying_key().jwk()]);
        *program.signs_with.lock() = 9;
        let token = world.token("a", json!({})).await;
        assert!(world.whoami(&token).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_tokens_are_written_into_secrets() {
    with_program(async |world, _| {
        world.account("a").await;
        let secret = json!({
            "metadata": {
                "name": "s", "annotations": {"kubernetes.io/service-account.name": "a"},
            },
            "type": "kubernetes.io/service-account-token",
        });
        world.create(super::SECRETS, secret).await;
        world.settled().await;
        let path = format!("{}/s", super::SECRETS);
        let found = world.admin(Method::GET, &path, Value::Null).await;
        assert_eq!(found.body["data"], Value::Null);
        // The rest of the server works on.
        assert_eq!(world.admin(Method::GET, ACCOUNTS, Value::Null).await.code, 200);
    })
    .await;
}
