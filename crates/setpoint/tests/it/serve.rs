//! `ControlPlane::serve`: certificates, credentials and clients over TLS; and the example program.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::PostParams;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use setpoint::apiserver::listen::CertificateFiles;
use setpoint::store::MemoryStore;
use setpoint::{ControlPlane, PeerOptions, ServeOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a program may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and the kubeconfig that it wrote.
pub(crate) struct Served {
    pub(crate) url: String,
    /// `host:port` of the listener without authentication.
    pub(crate) insecure: Option<String>,
    /// The authority of its certificate, in PEM.
    ca: String,
    kubeconfig: PathBuf,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Served {
    pub(crate) async fn start(
        dir: &Path,
        name: &str,
        plane: ControlPlane,
        options: ServeOptions,
    ) -> Self {
        let kubeconfig = dir.join(format!("{name}.kubeconfig"));
        let serving = plane.serve(options.kubeconfig(&kubeconfig)).await.unwrap();
        let (url, stop) = (serving.url().to_owned(), CancellationToken::new());
        let ca = serving.ca().to_owned();
        let insecure = serving.insecure_url().map(|url| url.replace("http://", ""));
        let mut running = JoinSet::new();
        let until = stop.clone();
        running.spawn(async move { serving.run(until).await.unwrap() });
        Self { url, insecure, ca, kubeconfig, stop, running }
    }

    pub(crate) async fn config(&self) -> Config {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    /// A config with exactly these credentials.
    pub(crate) async fn config_of(&self, credentials: &str) -> Config {
        let mut yaml: serde_json::Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        yaml["users"][0]["user"] = serde_saphyr::from_str(credentials).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&yaml.to_string()).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
    }
}

async fn get(config: Config) -> Result<(), kube_client::Error> {
    let namespaces = Api::<Namespace>::all(Client::try_from(config)?);
    namespaces.get("default").await.map(|_| ())
}

fn code(answer: Result<(), kube_client::Error>) -> u16 {
    match answer {
        Ok(()) => 200,
        Err(kube_client::Error::Api(status)) => status.code,
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) fn local() -> ServeOptions {
    ServeOptions::new(([127, 0, 0, 1], 0))
}

#[tokio::test]
async fn clients_can_switch_to_another_server_with_the_same_certificates_and_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let certificates = dir.path().join("certificates");
    let start = async |name: &str| {
        let builder = ControlPlane::builder().store(Arc::new(store.clone())).shared_as(name);
        Served::start(dir.path(), name, builder.build(), local().cert_dir(&certificates)).await
    };
    let (a, b) = tokio::join!(start("a"), start("b"));
    let mut config = a.config().await;
    get(config.clone()).await.unwrap();
    config.cluster_url = b.url.parse().unwrap();
    get(config.clone()).await.unwrap();
    a.stop().await;
    get(config).await.unwrap();
    b.stop().await;
}

#[tokio::test]
async fn a_server_with_peers_stops() {
    let dir = tempfile::tempdir().unwrap();
    let authority = rcgen::generate_simple_self_signed(["kubernetes.default.svc".to_owned()]);
    let peers = PeerOptions::new(authority.unwrap().cert.pem());
    let plane = ControlPlane::builder().shared_as("a").peers(peers).build();
    let served = Served::start(dir.path(), "a", plane, local()).await;
    get(served.config().await).await.unwrap();
    tokio::time::timeout(PATIENCE, served.stop()).await.unwrap();
}

#[tokio::test]
async fn only_tokens_and_client_certificates_of_the_files_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let ca = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let client = |name: &str, ca: &CertifiedIssuer<'_, KeyPair>| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = file(&format!("{name}.crt"), &params.signed_by(&key, ca).unwrap().pem());
        let key = file(&format!("{name}.key"), &key.serialize_pem());
        format!("{{client-certificate: {}, client-key: {}}}", certificate.display(), key.display())
    };
    let (known, unknown) = (ca(), ca());
    let options = local()
        .client_ca_file(file("ca.crt", &known.pem()))
        .token_auth_file(file("tokens", "alices-token,alice,1,\"dev,ops\"\n"))
        .tls_san("setpoint.example");
    let served = Served::start(dir.path(), "s", ControlPlane::builder().build(), options).await;
    let ask = async |credentials: &str| get(served.config_of(credentials).await).await;
    assert_eq!(code(ask("{token: alices-token}").await), 200);
    assert_eq!(code(ask("{token: bobs-token}").await), 401);
    assert_eq!(code(ask("{}").await), 401);
    assert_eq!(code(ask(&client("bob", &known)).await), 200);
    // The handshake needs only the key; the authority is checked for each request.
    assert_eq!(code(ask(&client("mallory", &unknown)).await), 401);

    let mut config = served.config().await;
    config.tls_server_name = Some("setpoint.example".to_owned());
    get(config.clone()).await.unwrap();
    config.tls_server_name = Some("other.example".to_owned());
    get(config).await.unwrap_err();
    served.stop().await;
}

#[tokio::test]
async fn the_certificate_is_for_the_addresses_at_which_others_reach_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let options = local().advertise_address([192, 0, 2, 7].into());
    let served = Served::start(dir.path(), "s", ControlPlane::builder().build(), options).await;
    let mut config = served.config().await;
    // The second is that of the Service `kubernetes`.
    for (address, is_valid) in [("192.0.2.7", true), ("10.0.0.1", true), ("192.0.2.8", false)] {
        config.tls_server_name = Some(address.to_owned());
        assert_eq!(get(config.clone()).await.is_ok(), is_valid, "{address}");
    }
    served.stop().await;
}

#[tokio::test]
async fn certificate_of_the_files_is_presented() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    // One file with both, as other servers want it.
    let file = dir.path().join("both.pem");
    let key = made.signing_key.serialize_pem();
    std::fs::write(&file, format!("The certificate\n{}{key}", made.cert.pem())).unwrap();
    let files = CertificateFiles { certificate: file.clone(), key: file };
    let plane = ControlPlane::builder().build();
    let served = Served::start(dir.path(), "s", plane, local().tls_files(files)).await;
    let config = served.config().await;
    assert_eq!(config.root_cert.as_ref().unwrap()[0], made.cert.der().as_ref());
    // What clients and pods get as the server's authority.
    let authority = served.ca.replace("\r\n", "\n");
    assert_eq!(authority, made.cert.pem().replace("\r\n", "\n"));
    get(config).await.unwrap();
    served.stop().await;
    // Unless a file names the authorities.
    let others = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap().cert.pem();
    let root = dir.path().join("root.pem");
    std::fs::write(&root, &others).unwrap();
    let plane = ControlPlane::builder().build();
    let served = Served::start(dir.path(), "r", plane, local().root_ca_file(root)).await;
    let normal = |pem: &str| pem.replace("\r\n", "\n").trim().to_owned();
    assert_eq!(normal(&served.ca), normal(&others));
    served.stop().await;
}

#[tokio::test]
async fn invalid_options_are_errors_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for options in [
        local().client_ca_file(&missing),
        local().root_ca_file(&missing),
        local().token_auth_file(&missing),
        local().tls_files(CertificateFiles::in_folder(&missing)),
        local().tls_san("no name"),
        ServeOptions::new(([192, 0, 2, 1], 0)),
    ] {
        let plane = ControlPlane::builder().build();
        let error = plane.serve(options).await.unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}

/// The example of the crate's root page, as a process.
struct Embedder(Child);

impl Embedder {
    fn start(dir: &Path) -> Self {
        let built = std::env::current_exe().unwrap();
        let program = built.parent().unwrap().parent().unwrap().join("examples/embed");
        if !program.exists() {
            // Running only this test does not build examples.
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "-p", "setpoint", "--example", "embed"]);
            assert!(cargo.status().unwrap().success());
        }
        // A file of an earlier run must not count.
        _ = std::fs::remove_file(dir.join("kubeconfig"));
        let mut program = Command::new(program);
        program.arg("0").current_dir(dir).stdout(Stdio::null());
        Self(program.spawn().unwrap())
    }

    fn stop(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // Already gone when the test went well.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn example_program_persists_objects_and_credentials_and_stops_gracefully() {
    let source = include_str!("../../examples/embed.rs");
    let n_lines = source.lines().filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(n_lines <= 12, "{n_lines} lines");
    let dir = tempfile::tempdir().unwrap();
    let maps = async || {
        let path = dir.path().join("kubeconfig");
        let config = tokio::time::timeout(PATIENCE, async {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let kubeconfig = Kubeconfig::read_from(&path).unwrap();
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
        });
        let client = Client::try_from(config.await.expect("it starts").unwrap()).unwrap();
        Api::<ConfigMap>::namespaced(client, "default")
    };
    let first = Embedder::start(dir.path());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("kept".to_owned());
    maps().await.create(&PostParams::default(), &map).await.unwrap();
    tokio::task::spawn_blocking(move || first.stop()).await.unwrap();
    let second = Embedder::start(dir.path());
    maps().await.get("kept").await.unwrap();
    tokio::task::spawn_blocking(move || second.stop()).await.unwrap();
}
