//! Certificates of webhooks that the program issues itself, keeps in a Secret, renews, and writes
//! into the configurations that API servers read.
//!
//! | step | what |
//! |---|---|
//! | Secret | `tls.crt`, `tls.key` and `ca.crt`, shared by all replicas; made by the first one |
//! | renewal | after two thirds of the validity, or for more names, by whichever replica sees it first. For more names it keeps the former ones: replicas of two versions do not replace each other's certificates |
//! | bundle | the new CA and the one before, so that servers accept the certificates of all replicas meanwhile |
//! | configurations | every webhook's `caBundle`; written again if somebody removes it |
//! | use | [`WebhookCertificates::PROPAGATION`] after the bundle was written, because API servers follow with a delay. A program that starts has no other certificate: it uses it at once, and is not ready for that time if a configuration had another bundle |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{Method, Request, header};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::answer::{ANSWER_MAX, request};
use setpoint_runtime::client::BODY_BYTES_MAX;
use setpoint_runtime::{
    Action, BoxError, BuildError, Controller, Request as Key, Watch, endpoint::Check,
};
use setpoint_webhook::certificate::{
    Certificate, CertificateError, CurrentCertificate, IssueError, Issued,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the Secret is read.
const PERIOD: Duration = Duration::from_secs(60);
/// How often a replica may lose to another one that writes the Secret, too.
const ATTEMPTS_MAX: usize = 5;
/// The most names of a certificate that is issued for more names; the oldest are left out.
const NAMES_MAX: usize = 64;
/// The annotation with the time after which the certificate is renewed.
const RENEW_AFTER: &str = "setpoint.dev/renew-after";
/// The annotation with the names of the certificate.
const NAMES: &str = "setpoint.dev/names";

/// Why certificates cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookCertificatesError {
    /// The API server refuses to read or write the Secret or a configuration.
    #[error("keep the certificate of the webhooks")]
    Api(#[from] Box<kube_client::Error>),
    /// The certificate cannot be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The Secret's certificate is damaged.
    #[error("use the certificate in the Secret {0}")]
    Damaged(String, #[source] CertificateError),
    /// Other replicas wrote the Secret again and again.
    #[error("write the Secret {0}: others wrote it {ATTEMPTS_MAX} times meanwhile")]
    Contended(String),
}

/// Certificates that a program issues for its webhooks: no other issuer is needed.
///
/// The program needs the rights to get, create and update the Secret; to get and patch the
/// configurations it names; and to list and watch their kinds.
///
/// ```no_run
/// # use setpoint::prelude::*;
/// # use setpoint::webhook::Webhooks;
/// # async fn serve(manager: &mut Manager, webhooks: setpoint::webhook::webhooks::WebhooksBuilder) -> Result<(), BoxError> {
/// use setpoint::{ManagerWebhooks, WebhookCertificates};
///
/// let certificates = WebhookCertificates::new("shop", "webhook-certificate")
///     .service("webhooks")
///     .mutating("shop.example.dev");
/// manager.webhooks_with_certificates(webhooks, certificates, |server| server).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct WebhookCertificates {
    namespace: String,
    secret: String,
    names: Vec<String>,
    mutating: Vec<String>,
    validating: Vec<String>,
    definitions: Vec<String>,
    validity: Duration,
}

impl WebhookCertificates {
    /// How long an issued certificate is valid, unless [`validity`](Self::validity) says otherwise:
    /// 90 days.
    pub const VALIDITY: Duration = Duration::from_secs(90 * 24 * 60 * 60);
    /// How long API servers may take to follow a changed CA bundle: 10 s.
    pub const PROPAGATION: Duration = Duration::from_secs(10);

    /// Certificates kept in this Secret, which is made if it is missing.
    pub fn new(namespace: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            secret: secret.into(),
            names: Vec::new(),
            mutating: Vec::new(),
            validating: Vec::new(),
            definitions: Vec::new(),
            validity: Self::VALIDITY,
        }
    }

    /// The webhooks are behind this Service of the Secret's namespace.
    pub fn service(self, name: &str) -> Self {
        let host = format!("{name}.{}.svc", self.namespace);
        self.host(host)
    }

    /// The webhooks are at this DNS name or address.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Writes the CA bundle into all webhooks of this MutatingWebhookConfiguration.
    pub fn mutating(mut self, name: impl Into<String>) -> Self {
        self.mutating.push(name.into());
        self
    }

    /// Writes the CA bundle into all webhooks of this ValidatingWebhookConfiguration.
    pub fn validating(mut self, name: impl Into<String>) -> Self {
        self.validating.push(name.into());
        self
    }

    /// Writes the CA bundle into the conversion webhook of this CustomResourceDefinition.
    pub fn definition(mut self, name: impl Into<String>) -> Self {
        self.definitions.push(name.into());
        self
    }

    /// How long a certificate is valid; it is renewed after two thirds of that. Default:
    /// [`VALIDITY`](Self::VALIDITY).
    pub fn validity(mut self, validity: Duration) -> Self {
        self.validity = validity;
        self
    }

    /// The paths of all configurations.
    fn paths(&self) -> impl Iterator<Item = String> {
        const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
        let of = |resource: &'static str, names: &[String]| {
            let path = move |name: &String| format!("{resource}/{name}");
            names.iter().map(path).collect::<Vec<_>>()
        };
        let admission = of("mutatingwebhookconfigurations", &self.mutating)
            .into_iter()
            .chain(of("validatingwebhookconfigurations", &self.validating))
            .map(|path| format!("{ADMISSION}/{path}"));
        let definitions = of("customresourcedefinitions", &self.definitions).into_iter();
        admission.chain(definitions.map(|path| format!("/apis/apiextensions.k8s.io/v1/{path}")))
    }

    fn secret_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.secret)
    }
}

/// All events have one key: a pass looks at everything.
fn all() -> Vec<Key> {
    vec![Key::cluster("certificates")]
}

/// What the Secret has.
#[derive(Clone, PartialEq, Eq)]
struct Stored {
    bundle: String,
    certificate: String,
    key: String,
}

/// Keeps the Secret, the configurations and the certificate of this replica.
pub(super) struct CertificateKeeper {
    client: Client,
    clock: Clock,
    options: WebhookCertificates,
    current: CurrentCertificate,
    /// The certificate that is served.
    served: Mutex<Stored>,
    /// Until then, API servers may know only another bundle. `None`: the one that is there was
    /// there before, or there was none.
    unknown_until: Option<Instant>,
}

impl CertificateKeeper {
    /// Reads or makes the Secret, and writes the bundle into the configurations that exist.
    pub(super) async fn start(
        client: Client,
        clock: Clock,
        options: WebhookCertificates,
    ) -> Result<Self, WebhookCertificatesError> {
        let stored = stored(&client, &clock, &options).await?;
        let current = CurrentCertificate::new(certificate(&stored, &options)?);
        let served = Mutex::new(stored.clone());
        let mut keeper = Self { client, clock, options, current, served, unknown_until: None };
        if keeper.inject(&stored.bundle).await? {
            keeper.unknown_until = Some(Instant::now() + WebhookCertificates::PROPAGATION);
        }
        Ok(keeper)
    }

    /// Whether API servers know the bundle of the first certificate.
    pub(super) fn is_known(&self) -> Check {
        let unknown_until = self.unknown_until;
        Check::new(move || {
            let is_unknown = unknown_until.is_some_and(|until| Instant::now() < until);
            let message = "API servers may not have the CA of the webhooks' certificate yet";
            async move { if is_unknown { Err(message.into()) } else { Ok(()) } }
        })
    }

    pub(super) fn current(&self) -> CurrentCertificate {
        self.current.clone()
    }

    /// The controller that goes on, on every replica.
    pub(super) fn controller(self) -> Result<Controller, BuildError> {
        let (has_definitions, keeper) = (!self.options.definitions.is_empty(), Arc::new(self));
        let mut builder = Controller::builder("webhook-certificates")
            .leader_only(false)
            .watches(
                Watch::<MutatingWebhookConfiguration>::metadata(),
                |_: &Event<PartialObjectMeta<MutatingWebhookConfiguration>>| all(),
            )
            .watches(
                Watch::<ValidatingWebhookConfiguration>::metadata(),
                |_: &Event<PartialObjectMeta<ValidatingWebhookConfiguration>>| all(),
            );
        if has_definitions {
            builder = builder.watches(
                Watch::<CustomResourceDefinition>::metadata(),
                |_: &Event<PartialObjectMeta<CustomResourceDefinition>>| all(),
            );
        }
        builder.build(move |_: Key, _: setpoint_runtime::Context| {
            let keeper = keeper.clone();
            async move {
                keeper.pass().await?;
                Ok::<_, BoxError>(Action::requeue_after(PERIOD))
            }
        })
    }

    async fn pass(&self) -> Result<(), WebhookCertificatesError> {
        let stored = stored(&self.client, &self.clock, &self.options).await?;
        let certificate = certificate(&stored, &self.options)?;
        self.inject(&stored.bundle).await?;
        if stored.certificate != self.served.lock().certificate {
            // Servers accept the former one meanwhile: its CA is in the bundle.
            tokio::time::sleep(WebhookCertificates::PROPAGATION).await;
            self.current.set(certificate);
            *self.served.lock() = stored;
        }
        Ok(())
    }

    /// Writes the bundle into the configurations that exist and have another, or none. Returns
    /// whether one had another.
    async fn inject(&self, bundle: &str) -> Result<bool, WebhookCertificatesError> {
        let bundle = base64(bundle);
        let mut has_replaced = false;
        for path in self.options.paths() {
            let Some(object) = get(&self.client, &path).await? else { continue };
            let patch = patch(&object, &bundle);
            if patch.is_empty() {
                continue;
            }
            has_replaced |= has_other_bundle(&object, &bundle);
            let version = &object["metadata"]["resourceVersion"];
            let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
            let patch = Value::Array([test].into_iter().chain(patch).collect());
            let sent = send(&self.client, Method::PATCH, &path, JSON_PATCH, &patch).await;
            match sent {
                // Somebody else wrote or deleted it, which is an event of its own.
                Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {}
                sent => _ = sent.map_err(Box::new)?,
            }
        }
        Ok(has_replaced)
    }
}

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Whether a webhook of a configuration, or the conversion of a definition, has another bundle.
fn has_other_bundle(object: &Value, bundle: &str) -> bool {
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    let configs = webhooks.map(|webhook| &webhook["clientConfig"]);
    let mut configs = configs.chain([&object["spec"]["conversion"]["webhook"]["clientConfig"]]);
    configs.any(|config| {
        config["caBundle"].as_str().is_some_and(|had| !had.is_empty() && had != bundle)
    })
}

/// What makes all webhooks of a configuration, or the conversion of a definition, have the bundle.
fn patch(object: &Value, bundle: &str) -> Vec<Value> {
    let add = |path: String| json!({"op": "add", "path": path, "value": bundle});
    let mut patch = Vec::new();
    for (n, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        if webhook["clientConfig"]["caBundle"] != bundle {
            patch.push(add(format!("/webhooks/{n}/clientConfig/caBundle")));
        }
    }
    let conversion = &object["spec"]["conversion"]["webhook"]["clientConfig"];
    if conversion.is_object() && conversion["caBundle"] != bundle {
        patch.push(add("/spec/conversion/webhook/clientConfig/caBundle".to_owned()));
    }
    patch
}

/// The certificate of the Secret, which is issued if there is none or it is to be renewed.
async fn stored(
    client: &Client,
    clock: &Clock,
    options: &WebhookCertificates,
) -> Result<Stored, WebhookCertificatesError> {
    let path = options.secret_path();
    for _ in 0..ATTEMPTS_MAX {
        let now = clock.now();
        let found = get(client, &path).await?;
        let former = found.as_ref().and_then(read);
        let mut names = options.names.clone();
        if let (Some(found), Some(former)) = (&found, &former) {
            let annotations = &found["metadata"]["annotations"];
            let renew_after = annotations[RENEW_AFTER].as_str().and_then(Timestamp::parse);
            if renew_after.is_some_and(|time| now < time) {
                let has = annotations[NAMES].as_str().unwrap_or_default().split(',');
                let has: Vec<String> = has.map(str::to_owned).collect();
                if names.iter().all(|name| has.contains(name)) {
                    return Ok(former.clone());
                }
                let others = has.into_iter().filter(|name| !options.names.contains(name));
                names.extend(others.filter(|name| !name.is_empty()));
                names.truncate(NAMES_MAX.max(options.names.len()));
            }
        }
        let issued = Issued::new(&names, now, options.validity).or_else(|_| {
            // Somebody may have changed the names in the Secret.
            names.clone_from(&options.names);
            Issued::new(&names, now, options.validity)
        })?;
        // The new CA, and the one before: clients take the first certificates first.
        let before = former.map(|former| first_certificate(&former.bundle)).unwrap_or_default();
        let bundle = format!("{}{before}", issued.ca);
        let stored = Stored { bundle, certificate: issued.certificate, key: issued.key };
        let renew_after = (now + options.validity * 2 / 3).rfc3339();
        let mut secret = found.clone().unwrap_or_else(|| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": {"name": options.secret, "namespace": options.namespace},
            })
        });
        secret["metadata"]["annotations"][RENEW_AFTER] = renew_after.into();
        secret["metadata"]["annotations"][NAMES] = names.join(",").into();
        secret["data"]["tls.crt"] = base64(&stored.certificate).into();
        secret["data"]["tls.key"] = base64(&stored.key).into();
        secret["data"]["ca.crt"] = base64(&stored.bundle).into();
        let written = match &found {
            Some(_) => send(client, Method::PUT, &path, JSON, &secret).await,
            None => {
                let secrets = format!("/api/v1/namespaces/{}/secrets", options.namespace);
                send(client, Method::POST, &secrets, JSON, &secret).await
            }
        };
        match written {
            Ok(_) => return Ok(stored),
            // Another replica was faster: its certificate counts.
            Err(kube_client::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Box::new(error).into()),
        }
    }
    Err(WebhookCertificatesError::Contended(path))
}

fn certificate(
    stored: &Stored,
    options: &WebhookCertificates,
) -> Result<Certificate, WebhookCertificatesError> {
    Certificate::from_pem(stored.certificate.as_bytes(), stored.key.as_bytes())
        .map_err(|error| WebhookCertificatesError::Damaged(options.secret_path(), error))
}

/// The content of a Secret; `None` if it is no usable certificate, so that it is replaced.
fn read(secret: &Value) -> Option<Stored> {
    let text = |key: &str| {
        let bytes = BASE64.decode(secret["data"][key].as_str()?).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let stored =
        Stored { bundle: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? };
    let is_usable =
        Certificate::from_pem(stored.certificate.as_bytes(), stored.key.as_bytes()).is_ok();
    is_usable.then_some(stored)
}

/// The first certificate of a bundle in PEM.
fn first_certificate(bundle: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.split_once(END).map(|(first, _)| format!("{first}{END}\n")).unwrap_or_default()
}

fn base64(text: &str) -> String {
    BASE64.encode(text)
}

/// Reads an object; `None` if there is none.
async fn get(client: &Client, path: &str) -> Result<Option<Value>, WebhookCertificatesError> {
    match send(client, Method::GET, path, JSON, &Value::Null).await {
        Ok(object) => Ok(Some(object)),
        Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(Box::new(error).into()),
    }
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Value, kube_client::Error> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let question = Request::builder().method(method).uri(path);
    let question = question.header(header::CONTENT_TYPE, content_type).body(body);
    let question = question.map_err(kube_client::Error::HttpError)?;
    request(client, question, BODY_BYTES_MAX, ANSWER_MAX).await
}
