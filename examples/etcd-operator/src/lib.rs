//! An operator of etcd clusters.
//!
//! | part | does |
//! |---|---|
//! | [`api`] | the types `EtcdCluster` and `EtcdBackup` |
//! | [`plan`] | the decision, a pure function: the observed state → one next step |
//! | [`observe`] | reads the state: objects, and the answers of members |
//! | [`objects`] | the pods, claims and Services of a cluster |
//! | [`cluster`] | the controller of clusters: observes, decides, takes one step, writes the status |
//! | [`backup`], [`save`] | the controller of backups, and the command that its pods run |
//! | [`etcd`] | etcd's API over HTTP |
//!
//! The operator creates pods and claims itself, without a StatefulSet. A StatefulSet removes the
//! member with the highest number first, recreates a pod before etcd has accepted a new member, and
//! replaces pods even if other members are unhealthy. Here each of these decisions is based on
//! etcd's list of members, and any member may be the lost one.

pub mod api;
pub mod backup;
pub mod cluster;
pub mod etcd;
pub mod objects;
pub mod observe;
pub mod plan;
pub mod save;

use crate::api::{EtcdBackup, EtcdCluster, MANAGED_BY, MANAGED_BY_LABEL};
use crate::backup::Agent;
use crate::etcd::Etcd;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use setpoint::prelude::*;
use setpoint::runtime::cache::{ByType, CacheConfig};
use std::sync::Arc;

/// The cache: of built-in types only the objects that the operator creates.
///
/// # Errors
///
/// None: these options are valid.
fn cache() -> Result<CacheOptions, BoxError> {
    let managed = format!("{MANAGED_BY_LABEL}={MANAGED_BY}");
    let own = ByType::new().config(CacheConfig::new().labels(managed));
    let options = CacheOptions::new().of::<Pod>(&(), own.clone())?;
    let options = options.of::<PersistentVolumeClaim>(&(), own.clone())?;
    let options = options.of::<ConfigMap>(&(), own.clone())?.of::<Service>(&(), own.clone())?;
    Ok(options.of::<PodDisruptionBudget>(&(), own)?)
}

/// Builds the manager of the program. Tests use it too.
///
/// # Errors
///
/// The server refuses the definitions.
pub async fn manager<E: Etcd>(
    builder: ManagerBuilder,
    etcd: Arc<E>,
    agent: Agent,
) -> Result<Manager, BoxError> {
    let mut manager = builder.cache(cache()?).build();
    manager.install_crds([EtcdCluster::crd(), EtcdBackup::crd()]).await?;
    manager.add(cluster::controller(etcd)?)?;
    manager.add(backup::controller(agent)?)?;
    Ok(manager)
}
