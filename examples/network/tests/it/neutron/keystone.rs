//! Tokens, and servers that are slow, busy or broken: a Keystone and a Neutron in memory, in
//! virtual time.

use super::cloud::{Cloud, Fault, Wire, desired, owner};
use super::fake::Fake;
use super::stories;
use network::backend::neutron::{
    ANSWER_BYTES_MAX, ATTEMPT_MAX, ATTEMPTS_MAX, Access, Credential, Dial, HttpError, Secret,
};
use network::backend::{Backend, BackendError, NeutronBackend};
use serde_json::{Value, json};
use setpoint::object::time::Timestamp;
use setpoint::prelude::Clock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECRET: &str = "correct horse battery staple";

/// Keystone, Neutron, and who logs in.
struct Stage {
    fake: Fake,
    cloud: Cloud,
    clock: Clock,
    /// The servers that were connected to.
    dialed: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::from_secs(1_700_000_000));
        let fake = Fake::new(clock.clone());
        {
            let mut state = fake.0.lock().unwrap();
            state.keystone = true;
            let user = json!({ "name": "me", "domain": { "name": "Default" }, "password": SECRET });
            state.identity = json!({ "methods": ["password"], "password": { "user": user } });
            let endpoint = |interface, region, url| json!({ "interface": interface, "region": region, "region_id": region, "url": url });
            state.catalog = json!([
                { "type": "compute", "endpoints": [endpoint("public", "one", "http://nova.one")] },
                { "type": "network", "name": "neutron", "endpoints": [
                    endpoint("internal", "one", "http://internal.one:9696/"),
                    endpoint("public", "one", "http://public.one/networking/v2.0"),
                    endpoint("public", "two", "http://public.two/networking"),
                ] },
            ]);
        }
        let cloud = fake.cloud("p1");
        Self { fake, cloud, clock, dialed: Arc::default() }
    }

    fn password(secret: Secret) -> Credential {
        Credential::Password {
            user: "me".into(),
            user_domain: "Default".into(),
            password: secret,
            project: "demo".into(),
            project_domain: "Default".into(),
        }
    }

    fn access(credential: Credential, region: Option<&str>) -> Access {
        Access::Keystone {
            url: "https://keystone.test/identity".into(),
            credential,
            region: region.map(str::to_owned),
            interface: "public".into(),
            endpoint: None,
        }
    }

    fn backend_for(&self, access: Access) -> NeutronBackend {
        let (wire, plain) = (self.cloud.wire.clone(), self.cloud.plain.clone());
        let dialed = self.dialed.clone();
        let dial = Dial::new(move |server| {
            dialed.lock().unwrap().push(server.to_string());
            Ok(wire.client(plain.clone()))
        });
        NeutronBackend::new(access, dial, self.clock.clone(), 1).unwrap()
    }

    fn backend(&self) -> NeutronBackend {
        let credential = Self::password(Secret::Text(SECRET.into()));
        self.backend_for(Self::access(credential, None))
    }

    /// Turns tokens off for a look by hand.
    fn open(&self) {
        self.fake.0.lock().unwrap().keystone = false;
    }

    fn logins(&self) -> usize {
        self.fake.0.lock().unwrap().n_logins
    }
}

async fn ensure(backend: &NeutronBackend) -> Result<bool, BackendError> {
    let made = backend.ensure(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
    made.map(|made| made.changed)
}

/// The cause of a failed call of the cloud.
fn cause(error: BackendError) -> HttpError {
    match error {
        BackendError::Cloud { source, .. } => *source,
        error => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn stories_hold_for_the_neutron_in_memory() {
    let n_clouds = AtomicU32::new(0);
    let fake = Fake::new(Clock::starting_at(Timestamp::from_secs(1_700_000_000)));
    let project =
        |name: &str| fake.cloud(&format!("{name}-{}", n_clouds.fetch_add(1, Ordering::Relaxed)));
    stories::tell_all(project, &[1, 2, 3, 4, 5, 6]).await;
}

#[tokio::test(start_paused = true)]
async fn catalogue_says_where_neutron_is() {
    for (region, server) in [
        (None, "http://public.one/"),
        (Some("one"), "http://public.one/"),
        (Some("two"), "http://public.two/"),
    ] {
        let stage = Stage::new();
        let credential = Stage::password(Secret::Text(SECRET.into()));
        let backend = stage.backend_for(Stage::access(credential, region));
        assert!(ensure(&backend).await.unwrap());
        assert_eq!(*stage.dialed.lock().unwrap(), ["https://keystone.test/", server]);
        let log = stage.cloud.wire.take_log();
        assert_eq!(log[0], "POST /identity/v3/auth/tokens");
        assert_eq!(log[1], "GET /networking/v2.0/networks");
        assert_eq!(stage.logins(), 1);
        stage.open();
        stage.cloud.has_only(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
    }
    let stage = Stage::new();
    let credential = Stage::password(Secret::Text(SECRET.into()));
    let backend = stage.backend_for(Stage::access(credential, Some("three")));
    let error = cause(ensure(&backend).await.unwrap_err());
    let text = "the catalogue has no public endpoint of type network in region three";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn application_credential_logs_in_with_the_secret_of_a_file() {
    let stage = Stage::new();
    let identity = |secret: &str| {
        let credential = json!({ "id": "c1", "secret": secret });
        json!({ "methods": ["application_credential"], "application_credential": credential })
    };
    stage.fake.0.lock().unwrap().identity = identity("first");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let credential =
        Credential::Application { id: "c1".into(), secret: Secret::File(file.clone()) };
    let backend = stage.backend_for(Stage::access(credential, None));
    let error = cause(ensure(&backend).await.unwrap_err());
    assert!(matches!(error, HttpError::Secret { .. }), "{error}");
    std::fs::write(&file, "first\n").unwrap();
    assert!(ensure(&backend).await.unwrap());
    // Both are replaced; the token is refused; the next login reads the file again.
    stage.fake.0.lock().unwrap().identity = identity("second");
    stage.fake.0.lock().unwrap().tokens.clear();
    std::fs::write(&file, "second").unwrap();
    assert!(!ensure(&backend).await.unwrap());
    assert_eq!(stage.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn token_is_renewed_before_its_end() {
    let stage = Stage::new();
    let backend = stage.backend();
    ensure(&backend).await.unwrap();
    sleep(Duration::from_secs(57 * 60)).await;
    ensure(&backend).await.unwrap();
    assert_eq!(stage.logins(), 1, "three minutes are left");
    sleep(Duration::from_secs(90)).await;
    ensure(&backend).await.unwrap();
    assert_eq!(stage.logins(), 2, "90 seconds are left");
}

#[tokio::test(start_paused = true)]
async fn refused_token_is_renewed_in_the_middle_of_a_call() {
    let stage = Stage::new();
    let backend = stage.backend();
    let refused = json!({ "error": { "message": "revoked" } });
    stage.cloud.wire.fault("POST /networking/v2.0/subnets", Fault::Answer(401, None, refused));
    assert!(ensure(&backend).await.unwrap());
    assert_eq!(stage.logins(), 2);
    stage.open();
    stage.cloud.has_only(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
}

#[tokio::test(start_paused = true)]
async fn wrong_password_is_tried_once_per_call() {
    let stage = Stage::new();
    let credential = Stage::password(Secret::Text("guess".into()));
    let access = Stage::access(credential, None);
    assert!(!format!("{access:?}").contains("guess"));
    let backend = stage.backend_for(access);
    let error = ensure(&backend).await.unwrap_err();
    assert_eq!(error.reason(), "BackendFailed");
    let text = "POST https://keystone.test/identity/v3/auth/tokens: 401 Unauthorized: \
        The request you have made requires authentication.";
    assert_eq!(cause(error).to_string(), text);
    assert_eq!(stage.logins(), 1);
    // Neutron that refuses even fresh tokens is asked twice.
    let stage = Stage::new();
    let backend = stage.backend();
    stage.fake.0.lock().unwrap().token_life = Duration::ZERO;
    cause(ensure(&backend).await.unwrap_err());
    assert_eq!(stage.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn busy_server_gets_the_pause_that_it_asks_for() {
    let stage = Stage::new();
    let backend = stage.backend();
    let busy = |after| Fault::Answer(429, Some(after), json!({}));
    stage.cloud.wire.fault("POST /networking/v2.0/networks", busy("7"));
    stage.cloud.wire.fault("POST /identity", Fault::Answer(503, None, Value::Null));
    let start = Instant::now();
    assert!(ensure(&backend).await.unwrap());
    let waited = start.elapsed().as_secs_f64();
    assert!((7.0..15.0).contains(&waited), "{waited}");
    // It is not worth waiting for an hour while other networks wait.
    stage.cloud.wire.fault("GET /networking/v2.0/networks", busy("3600"));
    let start = Instant::now();
    let error = cause(ensure(&backend).await.unwrap_err());
    assert_eq!(error.refusal().unwrap().0, 429);
    assert!(start.elapsed() < Duration::from_secs(1));
    stage.open();
    stage.cloud.has_only(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_repeated_if_they_may_be() {
    let stage = Stage::new();
    let backend = stage.backend();
    let wire = &stage.cloud.wire;
    let race = json!({ "NeutronError": { "type": "RetryRequest", "message": "again" } });
    for (start, fault) in [
        ("POST /networking/v2.0/networks", Fault::Answer(503, None, Value::Null)),
        ("POST /networking/v2.0/networks", Fault::Answer(409, None, race)),
        ("PUT /networking/v2.0/networks", Fault::LoseAnswer),
        ("GET /networking/v2.0/subnets", Fault::Answer(500, None, json!("<html>"))),
        ("GET /networking/v2.0/ports", Fault::LoseRequest),
    ] {
        wire.fault(start, fault);
    }
    assert!(ensure(&backend).await.unwrap());
    // The server fails longer than one call takes.
    wire.take_log();
    for _ in 0..9 {
        wire.fault("GET /networking/v2.0/networks", Fault::Answer(502, None, Value::Null));
    }
    cause(ensure(&backend).await.unwrap_err());
    assert_eq!(wire.take_log().len(), ATTEMPTS_MAX as usize);
    stage.open();
    stage.cloud.has_only(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
}

#[tokio::test(start_paused = true)]
async fn create_that_may_have_happened_is_not_repeated_but_looked_for() {
    let slow = ATTEMPT_MAX + Duration::from_secs(5);
    let error = json!({ "NeutronError": "internal" });
    for fault in
        [Fault::LoseAnswer, Fault::Slow(slow), Fault::Answer(500, None, error), Fault::LoseRequest]
    {
        for kind in ["networks", "subnets", "ports"] {
            let stage = Stage::new();
            let backend = stage.backend();
            let line = format!("POST /networking/v2.0/{kind}");
            stage.cloud.wire.fault(&line, fault.clone());
            cause(ensure(&backend).await.unwrap_err());
            let writes = stage.cloud.wire.take_writes();
            assert_eq!(writes.iter().filter(|write| **write == line).count(), 1, "{writes:?}");
            // A slow request takes effect while the next pass runs, or after it.
            ensure(&backend).await.unwrap();
            sleep(slow).await;
            ensure(&backend).await.unwrap();
            stage.open();
            stage.cloud.has_only(&owner("a"), desired("10.0.0.0/24", "10.0.0.1")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_bounded() {
    let stage = Stage::new();
    let backend = stage.backend();
    for line in ["POST /identity", "GET /networking/v2.0/networks"] {
        stage.cloud.wire.take_log();
        stage.cloud.wire.fault(line, Fault::Long(ANSWER_BYTES_MAX + 1));
        let error = cause(ensure(&backend).await.unwrap_err());
        assert!(matches!(error, HttpError::TooLong { .. }), "{error}");
    }
    // One that fits, and is nothing that Neutron answers.
    stage.cloud.wire.fault("GET /networking/v2.0/networks", Fault::Long(100));
    let error = cause(ensure(&backend).await.unwrap_err());
    assert!(matches!(error, HttpError::Malformed { .. }), "{error}");
    assert!(ensure(&backend).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn urls_without_a_server_are_refused() {
    let clock = Clock::starting_at(Timestamp::from_secs(1));
    let wire = Wire::default();
    for url in ["", "neutron", "ftp://neutron.test", "/v2.0"] {
        let access = Access::NoAuth { endpoint: url.into(), project: "p".into() };
        let (wire, fake) = (wire.clone(), Fake::new(clock.clone()));
        let dial = Dial::new(move |_| Ok(wire.client(fake.client())));
        let error = NeutronBackend::new(access, dial, clock.clone(), 1).unwrap_err();
        assert!(matches!(error, HttpError::Url(_)), "{url}: {error}");
    }
}
