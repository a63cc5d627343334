use super::proto::{Key, Timestamp};
use super::*;
use bytes::Bytes;
use serde_json::json;
use setpoint_grpc::testing::{Reply, Script};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// What a program answers.
#[derive(Debug, Clone)]
struct Behavior {
    /// Ids, and whether they are published.
    keys: Vec<(&'static str, bool)>,
    hint: i64,
    seconds: Option<i64>,
    longest: i64,
    header: Value,
    signature: &'static str,
    n_fetches: usize,
}

impl Default for Behavior {
    fn default() -> Self {
        Self {
            keys: vec![("a", true), ("old", false)],
            hint: 5,
            seconds: Some(7),
            longest: 600,
            header: json!({"alg": "ES256", "kid": "a", "typ": "JWT"}),
            signature: "c2ln",
            n_fetches: 0,
        }
    }
}

/// A program behind a socket. Dropping it closes everything.
struct Program {
    behavior: Arc<Mutex<Behavior>>,
    folder: TempDir,
    _tasks: JoinSet<()>,
}

/// The public key on P-256 in DER.
fn der() -> Vec<u8> {
    let pem = include_str!("../../../jwt/testdata/p256.pub");
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

impl Program {
    fn start(behavior: Behavior) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let behavior = Arc::new(Mutex::new(behavior));
        let own = behavior.clone();
        let script = Script::new(move |path, message| answer(&mut own.lock(), path, message));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(script.clone().serve(socket));
            }
        });
        Self { behavior, folder, _tasks: tasks }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    async fn open(&self, asked: Option<Duration>) -> Result<Arc<Signer>, String> {
        let socket = self.socket().display().to_string();
        let opened = Signer::open(&socket, asked, &Clock::wall(), &Metrics::new()).await;
        opened.map_err(|error| chain(&error))
    }
}

fn answer(behavior: &mut Behavior, path: &str, message: Bytes) -> Reply {
    match path {
        proto::METADATA => {
            Reply::message(&MetadataResponse { max_token_expiration_seconds: behavior.longest })
        }
        proto::FETCH_KEYS => {
            behavior.n_fetches += 1;
            let keys = behavior.keys.iter().map(|(id, is_published)| Key {
                key_id: (*id).to_owned(),
                key: der(),
                exclude_from_oidc_discovery: !is_published,
            });
            Reply::message(&FetchKeysResponse {
                keys: keys.collect(),
                data_timestamp: behavior.seconds.map(|seconds| Timestamp { seconds, nanos: 0 }),
                refresh_hint_seconds: behavior.hint,
            })
        }
        _ => {
            // `{` in base64.
            assert!(SignJwtRequest::decode(message).unwrap().claims.starts_with('e'));
            Reply::message(&SignJwtResponse {
                header: URL_SAFE_NO_PAD.encode(behavior.header.to_string()),
                signature: behavior.signature.to_owned(),
            })
        }
    }
}

#[tokio::test]
async fn a_token_has_the_header_and_the_signature_of_the_program() {
    let program = Program::start(Behavior::default());
    let signer = program.open(None).await.unwrap();
    assert_eq!(signer.max_expiration(), Duration::from_secs(600));
    assert!(signer.keys_age_max() <= Duration::from_secs(5));
    let token = signer.sign(json!({"iss": "x"})).await.unwrap();
    let parts: Vec<_> = token.split('.').collect();
    let decoded = |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(decoded(parts[0]), r#"{"alg":"ES256","kid":"a","typ":"JWT"}"#);
    assert_eq!((decoded(parts[1]), parts[2]), (r#"{"iss":"x"}"#.to_owned(), "c2ln"));
    let published = signer.keys().current().unwrap().jwks();
    assert_eq!(published["keys"].as_array().map(Vec::len), Some(1));
    assert_eq!(published["keys"][0]["kid"], "a");
}

#[tokio::test]
async fn headers_that_others_could_not_verify_are_refused() {
    let program = Program::start(Behavior::default());
    let signer = program.open(None).await.unwrap();
    let refused = async |header: Value| {
        program.behavior.lock().header = header;
        chain(&*signer.sign(json!({})).await.unwrap_err())
    };
    let header = |alg: &str, kid: &str, typ: &str| json!({"alg": alg, "kid": kid, "typ": typ});
    let check = async |header: Value, why: &str| {
        assert_eq!(refused(header).await, format!("while validating header: {why}"));
    };
    check(header("ES256", "a", "ABC"), "bad type").await;
    check(header("ES256", "", "JWT"), "key id missing").await;
    check(header("ES256", &"a".repeat(1025), "JWT"), "key id longer than 1 kb").await;
    check(header("ABC", "a", "JWT"), r#"bad signing algorithm "ABC""#).await;
    let why = "key used for signing JWT (kid: old) is excluded from OIDC discovery docs";
    check(header("ES256", "old", "JWT"), why).await;
    let more = refused(json!({"alg": "ES256", "kid": "a", "typ": "JWT", "crit": []})).await;
    assert!(more.starts_with("while validating header: while parsing header JSON: "), "{more}");
    // Nobody knows this key, but somebody may learn of it: kube-apiserver returns the token.
    program.behavior.lock().header = header("ES256", "new", "JWT");
    let n_before = program.behavior.lock().n_fetches;
    assert!(signer.sign(json!({})).await.is_ok());
    assert_eq!(program.behavior.lock().n_fetches, n_before + 1);
    program.behavior.lock().signature = "";
    let unsigned = signer.sign(json!({})).await.unwrap_err();
    assert_eq!(unsigned.to_string(), "empty signature returned");
}

#[tokio::test]
async fn a_program_that_cannot_be_used_is_refused_at_start() {
    let why =
        async |behavior: Behavior, asked| Program::start(behavior).open(asked).await.unwrap_err();
    let usual = Behavior::default;
    let first = "while initially filling key cache";
    let no_hint = why(Behavior { hint: 0, ..usual() }, None).await;
    assert_eq!(no_hint, format!("{first}: found invalid refresh hint (0s)"));
    let no_keys = why(Behavior { keys: vec![], ..usual() }, None).await;
    assert_eq!(no_keys, format!("{first}: found no keys"));
    let no_id = why(Behavior { keys: vec![("", true)], ..usual() }, None).await;
    assert_eq!(no_id, format!("{first}: found invalid public key id \"\""));
    let no_time = why(Behavior { seconds: None, ..usual() }, None).await;
    assert_eq!(no_time, format!("{first}: invalid data timestamp"));
    let short = why(Behavior { longest: 599, ..usual() }, None).await;
    assert_eq!(
        short,
        "max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)"
    );
    let long = why(usual(), Some(Duration::from_secs(3600))).await;
    assert_eq!(
        long,
        "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: 3600s > 600s"
    );
}

#[tokio::test]
async fn keys_are_asked_for_again_and_bad_ones_leave_the_former() {
    let program = Program::start(Behavior { hint: 1, ..Behavior::default() });
    let signer = program.open(None).await.unwrap();
    program.behavior.lock().keys.push(("b", true));
    signer.refresh().await.unwrap();
    let has = |id| signer.keys().current().unwrap().has(id);
    assert!(has("b"));
    program.behavior.lock().keys.clear();
    assert_eq!(signer.refresh().await.unwrap_err().to_string(), "found no keys");
    assert!(has("b"));
    program.behavior.lock().keys.push(("c", true));
    let stop = CancellationToken::new();
    let asked = async {
        while !signer.keys().current().unwrap().has("c") {
            tokio::task::yield_now().await;
        }
        assert!(!signer.keys().current().unwrap().has("b"));
        stop.cancel();
    };
    tokio::join!(signer.clone().run(stop.clone()), asked);
}
