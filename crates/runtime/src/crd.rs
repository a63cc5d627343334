//! Installs CustomResourceDefinitions.
//!
//! `#[derive(CustomResource)]` generates a type's definition with its schema: `Website::crd()`.
//! [`Manager::install_crds`](crate::Manager::install_crds) applies definitions before the manager
//! runs:
//!
//! | step | done when |
//! |---|---|
//! | server-side apply, forced: creates or updates the definition | the server has accepted it |
//! | wait | its conditions `NamesAccepted` and `Established` are true |
//! | wait | discovery lists the resource in each version that is served |
//!
//! If a program may not write definitions, install them when deploying it. Replicas may install the
//! same definitions concurrently. During a rollout, an old version of a program must not install
//! its definitions after the new one, since that would remove new fields.

use std::{fmt, time::Duration};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionCondition,
    },
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube_client::Api;
use kube_core::{
    ResourceExt,
    params::{Patch, PatchParams},
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::{OBJECT_BYTES_MAX, limited};

/// The time-out until all definitions are served: 30 s. A server needs less than one;
/// controller-runtime's test environment waits 10 s.
pub const INSTALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The delay between two polls of a definition: 100 ms, as controller-runtime's test environment.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// Why a definition was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The server refused the definition or the read, or could not be reached.
    #[error("{verb} the definition {name}")]
    Request {
        /// The verb.
        verb: &'static str,
        /// The definition's name.
        name: String,
        /// The reason.
        #[source]
        source: Box<kube_client::Error>,
    },
    /// The time-out passed before the definition was served.
    #[error("the definition {name} is not served after {waited:?}: {pending}")]
    Timeout {
        /// The definition's name.
        name: String,
        /// The time-out.
        waited: Duration,
        /// What was missing.
        pending: Pending,
    },
}

/// What a definition still lacks to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pending {
    /// The server's answer to the apply, or to the first read.
    Answer,
    /// A condition is not true: its type and its message.
    Condition {
        /// The type.
        condition: &'static str,
        /// The server's reason and message; may be empty.
        message: String,
    },
    /// Discovery does not list this `group/version` with the resource.
    Discovery(String),
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer => f.write_str("the server has not answered"),
            Self::Condition { condition, message } if message.is_empty() => {
                write!(f, "it is not {condition}")
            }
            Self::Condition { condition, message } => write!(f, "it is not {condition}: {message}"),
            Self::Discovery(version) => write!(f, "discovery does not list it in {version}"),
        }
    }
}

/// Creates or updates definitions, and waits until all are established and served, for at most
/// [`INSTALL_TIMEOUT`]. Their fields then belong to `field_manager`.
///
/// # Errors
///
/// The server refuses a definition, such as one without a structural schema; or the time-out
/// passes. Definitions that were accepted before stay.
pub async fn install_and_wait(
    client: &kube_client::Client,
    field_manager: &str,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<(), InstallError> {
    let started = Instant::now();
    let deadline = started + INSTALL_TIMEOUT;
    let client = &limited(client, OBJECT_BYTES_MAX);
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply(field_manager).force();
    let definitions: Vec<_> = definitions.into_iter().collect();
    let failed = |verb, name: &str, source| InstallError::Request {
        verb,
        name: name.to_owned(),
        source: Box::new(source),
    };
    let late = |name: &str, pending| InstallError::Timeout {
        name: name.to_owned(),
        waited: started.elapsed(),
        pending,
    };
    for definition in &definitions {
        let name = definition.name_any();
        let patch = Patch::Apply(definition);
        let applied = timeout_at(deadline, api.patch(&name, &params, &patch)).await;
        let applied = applied.map_err(|_| late(&name, Pending::Answer))?;
        applied.map_err(|source| failed("apply", &name, source))?;
    }
    for definition in &definitions {
        let name = definition.name_any();
        let mut pending = Pending::Answer;
        loop {
            let looked = timeout_at(deadline, look(client, &api, &name)).await;
            let Ok(looked) = looked else { return Err(late(&name, pending)) };
            match looked.map_err(|source| failed("read", &name, source))? {
                None => break,
                Some(lacks) => pending = lacks,
            }
            if timeout_at(deadline, sleep(POLL_PERIOD)).await.is_err() {
                return Err(late(&name, pending));
            }
        }
    }
    Ok(())
}

/// What a definition lacks to be served.
async fn look(
    client: &kube_client::Client,
    api: &Api<CustomResourceDefinition>,
    name: &str,
) -> Result<Option<Pending>, kube_client::Error> {
    let definition = api.get(name).await?;
    let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
    if let Some(pending) = lacking(&conditions) {
        return Ok(Some(pending));
    }
    for version in definition.spec.versions.iter().filter(|version| version.served) {
        let group_version = format!("{}/{}", definition.spec.group, version.name);
        let listed = match client.list_api_group_resources(&group_version).await {
            Ok(listed) => is_listed(&listed, &definition.spec.names.plural),
            Err(kube_client::Error::Api(status)) if status.code == 404 => false,
            Err(error) => return Err(error),
        };
        if !listed {
            return Ok(Some(Pending::Discovery(group_version)));
        }
    }
    Ok(None)
}

/// The first condition that is not true.
fn lacking(conditions: &[CustomResourceDefinitionCondition]) -> Option<Pending> {
    ["NamesAccepted", "Established"].into_iter().find_map(|wanted| {
        let known = conditions.iter().find(|condition| condition.type_ == wanted);
        if known.is_some_and(|condition| condition.status == "True") {
            return None;
        }
        let reason = known.iter().flat_map(|condition| [&condition.reason, &condition.message]);
        let reason: Vec<&str> = reason.flatten().map(String::as_str).collect();
        Some(Pending::Condition { condition: wanted, message: reason.join(": ") })
    })
}

fn is_listed(listed: &APIResourceList, plural: &str) -> bool {
    listed.resources.iter().any(|resource| resource.name == plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(
        type_: &str,
        status: &str,
        reason: Option<&str>,
    ) -> CustomResourceDefinitionCondition {
        CustomResourceDefinitionCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.map(|_| "Conflict".to_owned()),
            message: reason.map(str::to_owned),
            ..CustomResourceDefinitionCondition::default()
        }
    }

    #[test]
    fn both_conditions_must_be_true_and_the_first_false_one_is_named() {
        let text = |conditions: &[_]| lacking(conditions).map(|pending| pending.to_string());
        assert_eq!(text(&[]).as_deref(), Some("it is not NamesAccepted"));
        let taken = condition("NamesAccepted", "False", Some("\"webs\" is taken"));
        assert_eq!(
            text(&[taken]).as_deref(),
            Some("it is not NamesAccepted: Conflict: \"webs\" is taken")
        );
        let accepted = condition("NamesAccepted", "True", None);
        assert_eq!(text(std::slice::from_ref(&accepted)).as_deref(), Some("it is not Established"));
        assert_eq!(text(&[accepted, condition("Established", "True", None)]), None);
    }
}
