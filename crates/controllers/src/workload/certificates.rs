//! CertificateSigningRequests: approved, signed, and removed when they are old.
//!
//! # Theory
//!
//! | controller | does |
//! |---|---|
//! | [`CsrApprover`] | approves requests of kubelets for client certificates, if the requester may `create` `certificatesigningrequests/nodeclient`, or `selfnodeclient` for its own name |
//! | [`CsrSigner`] | signs approved requests for the signers that have an authority: [`Signers`] |
//! | [`CsrCleaner`] | deletes requests an hour after their certificate, denial or failure, after a day without, and when the certificate has expired |
//!
//! A certificate has the key and the alternative names of its request, the usages of the object,
//! and nothing else but the subject: those of its attributes that Go's certificates have, in their
//! order. The rules and the texts are those of kube-controller-manager's controllers
//! `csrapproving`, `csrsigning` and `csrcleaner`. A request is deleted when its time comes, not at
//! the next of hourly looks.

mod authority;
mod request;

pub use authority::{AuthorityError, CertificateAuthority};

use super::COMPONENT;
use crate::api::Api;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Csr, CertificateSigningRequestCondition as Condition,
    CertificateSigningRequestSpec as Spec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use request::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, Requested};
use serde_json::json;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::pem::Pem;

/// Number of requests that are processed at the same time: 5, as in kube-controller-manager.
const WORKERS: usize = 5;
/// The lifetime of certificates: a year, as `--cluster-signing-duration`.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The shortest lifetime that is signed: 10 min, as in kube-controller-manager.
const LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);
/// How long a request with a certificate, or without any prospect of one, stays.
const DECIDED_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a request without a decision, or without its certificate, stays.
const PENDING_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The authorities of the signers `kubernetes.io/…`. Cheap to clone.
#[derive(Debug, Clone)]
#[must_use]
pub struct Signers {
    authorities: BTreeMap<&'static str, Arc<CertificateAuthority>>,
    lifetime: Duration,
}

impl Signers {
    /// One authority for all signers.
    pub fn new(authority: CertificateAuthority) -> Self {
        let authority = Arc::new(authority);
        let names = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY];
        let authorities = names.into_iter().map(|name| (name, authority.clone())).collect();
        Self { authorities, lifetime: LIFETIME }
    }

    /// The lifetime of certificates; requests may choose a shorter one. Default: a year.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }
}

/// Whether a condition of the type exists and is true.
fn has(csr: &Csr, kind: &str) -> bool {
    condition(csr, kind).is_some_and(|held| held.status == "True")
}

fn condition<'a>(csr: &'a Csr, kind: &str) -> Option<&'a Condition> {
    conditions(csr).iter().find(|held| held.type_ == kind)
}

fn conditions(csr: &Csr) -> &[Condition] {
    let conditions = csr.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default()
}

fn certificate(csr: &Csr) -> Option<&[u8]> {
    let certificate = csr.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
}

fn usages(spec: &Spec) -> &[String] {
    spec.usages.as_deref().unwrap_or_default()
}

fn time(at: Option<&Time>) -> Option<Timestamp> {
    let seconds = u64::try_from(at?.0.as_second()).ok()?;
    Some(Timestamp::from_secs(seconds))
}

/// The version that a patch is for.
fn version(csr: &Csr) -> serde_json::Value {
    json!({"uid": csr.metadata.uid, "resourceVersion": csr.metadata.resource_version})
}

/// Adds a controller of requests to a manager.
fn add(
    manager: &mut Manager,
    name: &str,
    pass: impl BoxedReconciler<Error = BoxError>,
) -> Result<(), BoxError> {
    let controller = Controller::builder(name)
        .for_(Watch::<Csr>::new())
        .concurrency(WORKERS)
        .sync_timeout(None)
        .build(Boxed(pass))?;
    manager.add(controller)?;
    Ok(())
}

/// Approves kubelets' requests for client certificates.
#[must_use]
pub struct CsrApprover {
    api: Api,
}

impl fmt::Debug for CsrApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsrApprover").finish_non_exhaustive()
    }
}

impl CsrApprover {
    /// Creates a controller.
    pub fn new(setup: Setup) -> Self {
        Self { api: setup.api("csrapproving") }
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        add(manager, "csrapproving", Approve { api: self.api })
    }
}

struct Approve {
    api: Api,
}

impl BoxedReconciler for Approve {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let done = Ok(Action::await_change());
        let client = context.client().field_manager(COMPONENT);
        let Some(csr) = client.api::<Csr>().get_own(request).await? else { return done };
        let is_decided = ["Approved", "Denied"].iter().any(|kind| condition(&csr, kind).is_some());
        if certificate(&csr).is_some() || is_decided || csr.spec.signer_name != KUBELET_CLIENT {
            return done;
        }
        let requested = Requested::from_pem(&csr.spec.request.0)?;
        if requested.check_kubelet_client(usages(&csr.spec)).is_err() {
            return done;
        }
        let is_self = csr.spec.username.as_deref() == Some(&*requested.common_name);
        let rules = [
            (
                is_self,
                "selfnodeclient",
                "Auto approving self kubelet client certificate after SubjectAccessReview.",
            ),
            (
                true,
                "nodeclient",
                "Auto approving kubelet client certificate after SubjectAccessReview.",
            ),
        ];
        for (_, subresource, message) in rules.into_iter().filter(|(applies, _, _)| *applies) {
            if self.may_create(&csr.spec, subresource).await? {
                let mut conditions = serde_json::to_value(conditions(&csr))?;
                let approved = json!({
                    "type": "Approved", "status": "True", "reason": "AutoApproved",
                    "message": message,
                });
                if let Some(conditions) = conditions.as_array_mut() {
                    conditions.push(approved);
                }
                let patch = json!({
                    "metadata": version(&csr), "status": {"conditions": conditions},
                });
                let approval = client.api::<Csr>().subresource::<Csr>("approval");
                ignore_not_found(approval.patch(request, &Patch::Merge(patch)).await)?;
                return done;
            }
        }
        // The requester may get the right later.
        Ok(Action::requeue())
    }
}

impl Approve {
    /// Whether the requester has the right that approves its request.
    async fn may_create(&self, spec: &Spec, subresource: &str) -> Result<bool, BoxError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
                "resourceAttributes": {
                    "group": "certificates.k8s.io", "version": "*", "verb": "create",
                    "resource": "certificatesigningrequests", "subresource": subresource,
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        Ok(self.api.post(path, &review).await?["status"]["allowed"] == true)
    }
}

/// Signs approved requests.
#[must_use]
pub struct CsrSigner {
    signers: Option<Signers>,
    seed: u64,
}

/// Without keys.
impl fmt::Debug for CsrSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsrSigner").field("signs", &self.signers.is_some()).finish_non_exhaustive()
    }
}

impl CsrSigner {
    /// Creates a controller that signs with the authorities of `setup`. Without any it does
    /// nothing, as kube-controller-manager without `--cluster-signing-cert-file`.
    pub fn new(setup: Setup) -> Self {
        Self { signers: setup.signing().cloned(), seed: setup.own_seed() }
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let Some(signers) = self.signers else {
            tracing::info!("certificate requests are not signed: there is no authority");
            return Ok(());
        };
        add(manager, "csrsigning", Sign { signers, seed: self.seed })
    }
}

struct Sign {
    signers: Signers,
    seed: u64,
}

impl BoxedReconciler for Sign {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let done = Ok(Action::await_change());
        let client = context.client().field_manager(COMPONENT);
        let Some(csr) = client.api::<Csr>().get_own(request).await? else { return done };
        let is_approved = has(&csr, "Approved") && condition(&csr, "Denied").is_none();
        let authority = self.signers.authorities.get(csr.spec.signer_name.as_str());
        let Some(authority) = authority.filter(|_| is_approved && !has(&csr, "Failed")) else {
            return done;
        };
        if certificate(&csr).is_some() {
            return done;
        }
        let requested = Requested::from_pem(&csr.spec.request.0)?;
        let now = context.clock().now();
        let usages = usages(&csr.spec);
        let status = match requested.check(&csr.spec.signer_name, usages) {
            Err(message) => {
                let mut conditions = serde_json::to_value(conditions(&csr))?;
                if let Some(conditions) = conditions.as_array_mut() {
                    conditions.push(json!({
                        "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                        "message": message, "lastUpdateTime": now.rfc3339(),
                    }));
                }
                json!({"conditions": conditions})
            }
            Ok(()) => {
                let serial = self.serial(&csr, now);
                let lifetime = self.lifetime(csr.spec.expiration_seconds);
                let signed = authority.sign(&requested, usages, lifetime, now, serial)?;
                json!({"certificate": k8s_openapi::ByteString(signed.into_bytes())})
            }
        };
        let patch = json!({"metadata": version(&csr), "status": status});
        ignore_not_found(client.api::<Csr>().patch_status(request, &Patch::Merge(patch)).await)?;
        done
    }
}

impl Sign {
    fn lifetime(&self, requested: Option<i32>) -> Duration {
        let Some(seconds) = requested else { return self.signers.lifetime };
        let requested = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        requested.max(LIFETIME_MIN).min(self.signers.lifetime)
    }

    /// A number that no other certificate of the authority has.
    fn serial(&self, csr: &Csr, now: Timestamp) -> [u8; 16] {
        let mut digest = Sha256::new();
        digest.update(self.seed.to_be_bytes());
        digest.update(csr.metadata.uid.as_deref().unwrap_or_default());
        digest.update(now.0.as_nanos().to_be_bytes());
        let mut serial = [0; 16];
        serial.copy_from_slice(&digest.finalize()[..16]);
        serial
    }
}

/// Deletes old requests.
#[derive(Debug, Clone)]
#[must_use]
pub struct CsrCleaner(());

impl CsrCleaner {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        add(manager, "csrcleaner", Clean)
    }
}

struct Clean;

impl BoxedReconciler for Clean {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let requests = context.client().field_manager(COMPONENT).api::<Csr>();
        let Some(csr) = requests.get(request)? else { return Ok(Action::await_change()) };
        let Some(end) = end(&csr).filter(|_| csr.metadata.deletion_timestamp.is_none()) else {
            return Ok(Action::await_change());
        };
        let left = end.since(context.clock().now());
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: csr.metadata.uid.clone(),
                resource_version: csr.metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        ignore_not_found(requests.delete(request, &params).await)?;
        Ok(Action::await_change())
    }
}

/// When a request is deleted.
fn end(csr: &Csr) -> Option<Timestamp> {
    if conditions(csr).is_empty() {
        return Some(time(csr.metadata.creation_timestamp.as_ref())? + PENDING_MAX);
    }
    let certificate = certificate(csr);
    let ends = conditions(csr).iter().filter_map(|held| {
        let updated = time(held.last_update_time.as_ref());
        match held.type_.as_str() {
            "Denied" | "Failed" => Some(updated? + DECIDED_MAX),
            "Approved" => match certificate {
                Some(pem) => {
                    updated.map(|at| at + DECIDED_MAX).into_iter().chain(not_after(pem)).min()
                }
                None => Some(updated? + PENDING_MAX),
            },
            _ => None,
        }
    });
    ends.min()
}

/// When the first certificate of a chain ends.
fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    let seconds = block.parse_x509().ok()?.validity().not_after.timestamp();
    Some(Timestamp::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests;
