//! Which tokens an agent may request.
use super::pods::{find, is_on};
use super::refuse;
use crate::admission::Review;
use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::features::Feature;
use crate::kind::{list, text};
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::error::aggregate;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource};
use std::collections::HashSet;
use std::sync::Arc;

/// Volume sources that drivers have taken over, with the drivers.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// A token must be bound to a pod on the node, for an audience of that pod.
pub(super) async fn check(
    review: &Review<'_>,
    node: &str,
    request: &Value,
) -> Result<(), ApiError> {
    let bound = &request["spec"]["boundObjectRef"];
    let row = review.inner.catalog.borrow().get("", "v1", "pods").cloned();
    let is_pod = row.is_some_and(|row| *row.gvk.kind == *text(bound, "kind"));
    if !is_pod || text(bound, "apiVersion") != "v1" || text(bound, "name").is_empty() {
        return refuse(review, "node requested token not bound to a pod");
    }
    let uid = text(bound, "uid");
    if uid.is_empty() {
        return refuse(review, "node requested token with a pod binding without a uid");
    }
    let pod = find(review, text(bound, "name")).await?;
    if pod.uid() != uid {
        return refuse(
            review,
            &format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        );
    }
    if !is_on(Some(&pod), node) {
        return refuse(review, "node requested token bound to a pod scheduled on a different node");
    }
    if !review.inner.features.is_on(Feature::ServiceAccountNodeAudienceRestriction) {
        return Ok(());
    }
    let audience = match list(&request["spec"], "audiences") {
        [] => "",
        [audience] => audience.as_str().unwrap_or_default(),
        _ => return refuse(review, "node may only request 0 or 1 audiences"),
    };
    match uses(review, &pod, audience).await? {
        Ok(true) => Ok(()),
        Ok(false) => authorized(review, audience).await,
        Err(error) => {
            let audience = quote(audience);
            refuse(review, &format!("error validating audience {audience}: {error}"))
        }
    }
}

/// Asks the authorizers about an audience that the pod does not use.
async fn authorized(review: &Review<'_>, audience: &str) -> Result<(), ApiError> {
    let path = ResourcePath {
        version: "v1".to_owned(),
        resource: audience.to_owned(),
        namespace: review.namespace.to_owned(),
        name: review.name.to_owned(),
        ..ResourcePath::default()
    };
    let verb = Verb::from("request-serviceaccounts-token-audience");
    let decided = review.decide(verb, path).await;
    let (user, audience) = (&review.attributes.identity.user, quote(audience));
    let absent = format!("audience {audience} not found in pod spec volume");
    match decided {
        Ok(Decision::Allow(_)) => Ok(()),
        Ok(_) => refuse(
            review,
            &format!("{absent}, {user} is not authorized to request tokens for this audience"),
        ),
        Err(error) => refuse(
            review,
            &format!(
                "{absent}, error authorizing {user} to request tokens for this audience: {error}"
            ),
        ),
    }
}

/// Whether a volume of a pod has tokens for an audience: a projected token, or the driver of a
/// volume. The inner error is why that is not known.
async fn uses(
    review: &Review<'_>,
    pod: &Value,
    audience: &str,
) -> Result<Result<bool, String>, ApiError> {
    let mut errors: Vec<String> = Vec::new();
    // Each once, however often a pod names it.
    let (mut drivers, mut claims) = (HashSet::new(), HashSet::new());
    for volume in list(&pod["spec"], "volumes") {
        let projected = list(&volume["projected"], "sources").iter();
        let mut tokens = projected.map(|source| &source["serviceAccountToken"]);
        if tokens.any(|token| token.is_object() && text(token, "audience") == audience) {
            return Ok(Ok(true));
        }
        let claim = if volume["ephemeral"]["volumeClaimTemplate"].is_object() {
            Some(format!("{}-{}", pod.name(), text(volume, "name")))
        } else if volume["persistentVolumeClaim"].is_object() {
            Some(text(&volume["persistentVolumeClaim"], "claimName").to_owned())
        } else {
            None
        };
        let driver = match claim {
            Some(claim) if !claims.insert(claim.clone()) => continue,
            Some(claim) => match driver_of_claim(review, &claim).await? {
                Ok(driver) => driver,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            },
            None => driver_of(volume).unwrap_or_default(),
        };
        if driver.is_empty() || !drivers.insert(driver.clone()) {
            continue;
        }
        match find_object(
            review,
            "storage.k8s.io",
            "csidrivers",
            "csidriver.storage.k8s.io",
            "",
            &driver,
        )
        .await?
        {
            Ok(found) => {
                let mut tokens = list(&found["spec"], "tokenRequests").iter();
                if tokens.any(|token| text(token, "audience") == audience) {
                    return Ok(Ok(true));
                }
            }
            Err(error) => errors.push(error),
        }
    }
    Ok(match &errors[..] {
        [] => Ok(false),
        errors => Err(aggregate(errors)),
    })
}

/// The driver of a volume source; `None`: it has none.
fn driver_of(source: &Value) -> Option<String> {
    let own = &source["csi"];
    if own.is_object() {
        return Some(text(own, "driver").to_owned());
    }
    let migrated = MIGRATED.iter().find(|(name, _)| source[*name].is_object());
    migrated.map(|(_, driver)| (*driver).to_owned())
}

/// The driver of the volume that a claim is bound to; empty if it has none.
async fn driver_of_claim(
    review: &Review<'_>,
    name: &str,
) -> Result<Result<String, String>, ApiError> {
    let namespace = review.namespace;
    let claim =
        find_object(review, "", "persistentvolumeclaims", "persistentvolumeclaim", namespace, name);
    let claim = match claim.await? {
        Ok(claim) => claim,
        Err(error) => return Ok(Err(error)),
    };
    let name = text(&claim["spec"], "volumeName");
    let volume = find_object(review, "", "persistentvolumes", "persistentvolume", "", name);
    Ok(volume.await?.map(|volume| driver_of(&volume["spec"]).unwrap_or_default()))
}

/// An object; the inner error says that it is missing.
async fn find_object(
    review: &Review<'_>,
    group: &str,
    resource: &str,
    shown: &str,
    namespace: &str,
    name: &str,
) -> Result<Result<Arc<Value>, String>, ApiError> {
    let resource = GroupVersionResource::new(group, "v1", resource);
    let found = match name {
        "" => None,
        name => review.objects().tree(&resource, namespace, name).await?,
    };
    Ok(found.ok_or_else(|| format!("{shown} {} not found", quote(name))))
}
