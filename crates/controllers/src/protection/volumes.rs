//! Protection of PersistentVolumes. Admission adds the finalizer to every volume; one that has lost
//! it gets it here. The rules are those of kube-controller-manager's
//! `pv-protection-controller`.

use super::finalizer::{protect, release, wrongly_protected};
use crate::api::{Api, RequestError};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::core::v1::PersistentVolume;
use setpoint_runtime::{Action, BoxError, Context, Controller, Request, Watch};

const NAME: &str = "pv-protection-controller";
const FINALIZER: &str = "kubernetes.io/pv-protection";

pub(super) fn controller(setup: &Setup) -> Result<Controller, BoxError> {
    let controller = Controller::builder(NAME)
        .for_(Watch::<PersistentVolume>::metadata().filter(wrongly_protected(FINALIZER)))
        .sync_timeout(None)
        .build(Boxed(Pass { api: setup.api(NAME) }))?;
    Ok(controller)
}

struct Pass {
    api: Api,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, RequestError> {
        let path = format!("/api/v1/persistentvolumes/{}", request.name);
        let Some(volume) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        protect(&self.api, &path, &volume, FINALIZER).await?;
        if volume["status"]["phase"] != "Bound" {
            release(&self.api, &path, &volume, FINALIZER).await?;
        }
        Ok(Action::await_change())
    }
}
