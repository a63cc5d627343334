//! An operator of etcd clusters.
//!
//! | part | does |
//! |---|---|
//! | [`api`] | the types `EtcdCluster` and `EtcdBackup` |
//! | [`plan`] | the decision, a pure function: what is there → one next step |
//! | [`observe`] | what is there: objects, and what the members say |
//! | [`objects`] | the pods, claims and Services of a cluster |
//! | [`cluster`] | the controller of clusters: looks, decides, takes one step, says how it is |
//! | [`backup`], [`save`] | the controller of backups, and the command that its pods run |
//! | [`etcd`] | etcd's API over HTTP |
//!
//! The operator makes pods and claims itself, without a StatefulSet. A StatefulSet removes the
//! member with the highest number first, makes a pod again before etcd has agreed to a new member,
//! and replaces pods whether or not the others are healthy in etcd's sense. Here each of these
//! follows from etcd's list of members, and the lost member may be any.

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
use setpoint::runtime::cache::ByType;
use std::sync::Arc;

/// What is cached: of the built-in types only what the operator makes.
///
/// # Errors
///
/// Never, as it is built here; the options' own rules say when.
fn cache() -> Result<CacheOptions, BoxError> {
    let mut own = ByType::default();
    own.config.labels = Some(format!("{MANAGED_BY_LABEL}={MANAGED_BY}"));
    let options = CacheOptions::new().of::<Pod>(&(), own.clone())?;
    let options = options.of::<PersistentVolumeClaim>(&(), own.clone())?;
    let options = options.of::<ConfigMap>(&(), own.clone())?.of::<Service>(&(), own.clone())?;
    Ok(options.of::<PodDisruptionBudget>(&(), own)?)
}

/// What the program runs, and what its tests run.
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
