//! The admission plugin `ImagePolicyWebhook`: another server decides which images run
//! (`imagepolicy.k8s.io/v1alpha1` `ImageReview`).

use super::cache::{Answer, Answers};
use super::{ATTEMPT_MAX, RemoteError};
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value, json};
use setpoint_egress::Dialer;
use setpoint_object::ApiError;
use setpoint_object::error::chain;
use setpoint_registry::{Admission, Operation, Review, Subresource};
use setpoint_remote::{Remote, RequestError, Retry};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The plugin's name, in configurations too.
const NAME: &str = "ImagePolicyWebhook";
/// The prefix of its audit annotations.
const ANNOTATION: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// Annotations of pods with this in their keys are part of a review.
const DOMAIN: &str = ".image-policy.k8s.io/";
/// The number of attempts.
const ATTEMPTS: u32 = 5;
/// By how much each pause between attempts is longer than the one before.
const GROWTH: f64 = 1.5;

/// Why the plugin cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagePolicyError {
    /// There is no configuration, which has to name the server.
    #[error("no config specified")]
    NoConfiguration,
    /// A value is out of range.
    #[error("valid value is between {min:?} and {max:?}, got {found}")]
    OutOfRange {
        /// The least.
        min: Duration,
        /// The most.
        max: Duration,
        /// The number that was given.
        found: i64,
    },
    /// The server cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// The plugin. It calls the server about the images of new and changed pods, and caches an answer
/// for a while.
///
/// ```yaml
/// imagePolicy:
///   kubeConfigFile: /etc/images.kubeconfig
///   allowTTL: 300       # seconds
///   denyTTL: 30         # seconds
///   retryBackoff: 500   # milliseconds
///   defaultAllow: false # if the server does not answer
/// ```
#[derive(Debug)]
pub struct ImagePolicyWebhook {
    remote: Remote,
    settings: Settings,
    answers: Answers<Verdict>,
}

#[derive(Debug, Clone, PartialEq)]
struct Settings {
    kubeconfig: PathBuf,
    allow_ttl: Duration,
    deny_ttl: Duration,
    pause: Duration,
    allows_by_default: bool,
}

/// The `status` of a review.
#[derive(Debug, Clone, Default, PartialEq)]
struct Verdict {
    is_allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

impl Answer for Verdict {
    fn n_bytes(&self) -> usize {
        let annotations = self.annotations.iter().map(|(key, text)| key.len() + text.len() + 48);
        self.reason.len() + annotations.sum::<usize>()
    }
}

impl Settings {
    fn of(configuration: &Value) -> Result<Self, ImagePolicyError> {
        let policy = &configuration["imagePolicy"];
        let Some(kubeconfig) = policy["kubeConfigFile"].as_str().filter(|file| !file.is_empty())
        else {
            return Err(ImagePolicyError::NoConfiguration);
        };
        // Zero: the default; -1: none.
        let length = |member: &str, unit: Duration, default: Duration, max: Duration| match policy
            [member]
            .as_i64()
            .unwrap_or(0)
        {
            -1 => Ok(Duration::ZERO),
            0 => Ok(default),
            found => {
                let length = u32::try_from(found).ok().and_then(|n| unit.checked_mul(n));
                length.filter(|length| *length <= max).ok_or(ImagePolicyError::OutOfRange {
                    min: unit,
                    max,
                    found,
                })
            }
        };
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        Ok(Self {
            kubeconfig: PathBuf::from(kubeconfig),
            allow_ttl: length("allowTTL", second, 5 * minute, 30 * minute)?,
            deny_ttl: length("denyTTL", second, second * 30, 30 * minute)?,
            pause: length("retryBackoff", second / 1000, second / 2, 5 * minute)?,
            allows_by_default: policy["defaultAllow"] == true,
        })
    }
}

impl ImagePolicyWebhook {
    /// The plugin with a configuration. Call it within a tokio runtime. Connects later.
    ///
    /// # Errors
    ///
    /// The configuration names no server, has a length of time out of range, or names a kubeconfig
    /// that cannot be used.
    pub async fn open(configuration: &Value) -> Result<Self, ImagePolicyError> {
        let settings = Settings::of(configuration)?;
        let remote = Remote::open(Path::new(&settings.kubeconfig), Dialer::default()).await?;
        Ok(Self { remote, settings, answers: Answers::new() })
    }

    async fn ask(&self, spec: &Value) -> Result<Verdict, RequestError> {
        let question = spec.to_string().into_bytes();
        if let Some(verdict) = self.answers.get(&question) {
            return Ok(verdict);
        }
        let review = json!({
            "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "spec": spec,
        });
        let pause = self.settings.pause;
        let retry = Retry { attempts: ATTEMPTS, pause, growth: GROWTH, whatever: false };
        let answer = self.remote.ask(&review, ATTEMPT_MAX, retry).await?;
        let verdict = verdict(&answer["status"]);
        let ttl = match verdict.is_allowed {
            true => self.settings.allow_ttl,
            false => self.settings.deny_ttl,
        };
        self.answers.keep(&question, verdict.clone(), ttl);
        Ok(verdict)
    }
}

fn verdict(status: &Value) -> Verdict {
    let annotations = status["auditAnnotations"].as_object().into_iter().flatten();
    Verdict {
        is_allowed: status["allowed"] == true,
        reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        annotations: annotations
            .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
            .collect(),
    }
}

/// The `spec` of the review of a pod. `only_ephemeral`: of its ephemeral containers.
fn spec(pod: &Value, namespace: &str, only_ephemeral: bool) -> Value {
    let lists: &[&str] = match only_ephemeral {
        true => &["ephemeralContainers"],
        false => &["containers", "initContainers"],
    };
    let containers =
        lists.iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let containers: Vec<Value> = containers.map(|one| json!({"image": one["image"]})).collect();
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotations: Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(DOMAIN))
        .map(|(key, text)| (key.clone(), text.clone()))
        .collect();
    let mut spec = json!({"namespace": namespace});
    if !containers.is_empty() {
        spec["containers"] = containers.into();
    }
    if !annotations.is_empty() {
        spec["annotations"] = annotations.into();
    }
    spec
}

impl Admission for ImagePolicyWebhook {
    fn name(&self) -> &str {
        NAME
    }

    fn handles(&self, review: &Review<'_>) -> bool {
        let row = review.resource();
        let is_pod = row.gvk.group.is_empty() && *row.resource == *"pods";
        let part = review.subresource().map_or("", Subresource::as_str);
        is_pod
            && matches!(part, "" | "ephemeralcontainers")
            && matches!(review.operation(), Operation::Create | Operation::Update)
    }

    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let Some(pod) = object else { return Ok(()) };
            let spec = spec(pod, review.namespace(), review.subresource().is_some());
            let verdict = match self.ask(&spec).await {
                Ok(verdict) => verdict,
                Err(error) => {
                    tracing::warn!(error = chain(&error), "ask the image policy webhook");
                    if !self.settings.allows_by_default {
                        return Err(review.forbidden(&error.to_string()));
                    }
                    review.annotate(format!("{ANNOTATION}failed-open"), "true");
                    return Ok(());
                }
            };
            for (key, text) in &verdict.annotations {
                review.annotate(format!("{ANNOTATION}{key}"), text);
            }
            match (verdict.is_allowed, &*verdict.reason) {
                (true, _) => Ok(()),
                (false, "") => {
                    Err(review.forbidden("one or more images rejected by webhook backend"))
                }
                (false, reason) => Err(review.forbidden(&format!(
                    "image policy webhook backend denied one or more images: {reason}"
                ))),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_defaults_and_bounds() {
        let of = |members: Value| {
            let mut policy = json!({"kubeConfigFile": "/x"});
            policy.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            Settings::of(&json!({"imagePolicy": policy})).map_err(|error| error.to_string())
        };
        let defaults = of(json!({})).unwrap();
        let seconds = |n| Duration::from_secs(n);
        assert_eq!((defaults.allow_ttl, defaults.deny_ttl), (seconds(300), seconds(30)));
        assert_eq!(defaults.pause, Duration::from_millis(500));
        let given = of(json!({"allowTTL": -1, "denyTTL": 7, "defaultAllow": true})).unwrap();
        assert_eq!((given.allow_ttl, given.deny_ttl), (Duration::ZERO, seconds(7)));
        assert!(given.allows_by_default);
        let error = of(json!({"allowTTL": 1801})).unwrap_err();
        assert_eq!(error, "valid value is between 1s and 1800s, got 1801");
        assert_eq!(Settings::of(&json!({})).unwrap_err().to_string(), "no config specified");
    }

    #[test]
    fn a_review_has_images_and_its_own_annotations() {
        let pod = json!({
            "metadata": {"annotations": {"a.image-policy.k8s.io/break-glass": "1", "b": "2"}},
            "spec": {
                "containers": [{"image": "x"}], "initContainers": [{"image": "y"}],
                "ephemeralContainers": [{"image": "z"}],
            },
        });
        let annotations = json!({"a.image-policy.k8s.io/break-glass": "1"});
        assert_eq!(
            spec(&pod, "shop", false),
            json!({
                "namespace": "shop", "annotations": annotations,
                "containers": [{"image": "x"}, {"image": "y"}],
            })
        );
        assert_eq!(spec(&pod, "shop", true)["containers"], json!([{"image": "z"}]));
    }
}
