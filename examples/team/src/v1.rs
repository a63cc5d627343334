//! The older version of a Team, which some clients still use.

use crate::TeamSpec as Hub;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;
use setpoint::webhook::{Refusal, Spoke};

/// The spec of a Team.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Team",
    namespaced,
    crates(kube_core = "setpoint::kube_core")
)]
pub struct TeamSpec {
    /// The names of the members, separated by commas.
    pub members: String,
}

/// The annotation with the lead, for which this version has no field. Without it, a client that
/// reads v1 and writes it back would delete the lead.
const LEAD: &str = "example.dev/lead";

impl Spoke<crate::Team> for Team {
    fn to_hub(mut self) -> Result<crate::Team, Refusal> {
        let lead = self.annotations_mut().remove(LEAD);
        let names = self.spec.members.split(',').map(str::trim);
        let members = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(crate::Team { metadata: self.metadata, spec: Hub { members, lead } })
    }

    fn from_hub(mut hub: crate::Team) -> Result<Self, Refusal> {
        if let Some(lead) = hub.spec.lead.take() {
            hub.annotations_mut().insert(LEAD.to_owned(), lead);
        }
        let spec = TeamSpec { members: hub.spec.members.join(",") };
        Ok(Self { metadata: hub.metadata, spec })
    }
}
