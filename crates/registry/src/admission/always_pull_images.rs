//! AlwaysPullImages: images are pulled for each pod, so that only users with pull rights can run
//! them.
use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::{ApiError, field};
use std::collections::HashSet;

/// The lists of containers of a pod.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

#[derive(Debug)]
pub(super) struct AlwaysPullImages;

impl Admission for AlwaysPullImages {
    fn name(&self) -> &str {
        "AlwaysPullImages"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Create => review.is("", "pods"),
            Operation::Update => review.is("", "pods"),
            Operation::Delete | Operation::Connect => false,
        }
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if has_new_images(review.old, pod) {
            for member in CONTAINERS {
                let containers = pod["spec"].get_mut(member).and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten() {
                    container["imagePullPolicy"] = "Always".into();
                }
            }
            let volumes = pod["spec"].get_mut("volumes").and_then(Value::as_array_mut);
            for volume in volumes.into_iter().flatten() {
                if let Some(image) = volume.get_mut("image").filter(|image| image.is_object()) {
                    image["pullPolicy"] = "Always".into();
                }
            }
        }
        futures::future::ready(Ok(())).boxed()
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        pod: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let result = match pod.filter(|pod| has_new_images(review.old, pod)).and_then(fault) {
            Some(error) => Err(review.forbidden(&error.to_string())),
            None => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}

/// Whether a pod has an image that the stored one lacks.
fn has_new_images(old: Option<&Value>, pod: &Value) -> bool {
    let Some(old) = old else { return true };
    let (known, images) = (images(old), images(pod));
    !images.is_subset(&known)
}
fn images(pod: &Value) -> HashSet<&str> {
    let containers = CONTAINERS.into_iter().flat_map(|member| list(&pod["spec"], member));
    let images = containers.map(|container| text(container, "image"));
    let volumes = list(&pod["spec"], "volumes").iter();
    images.chain(volumes.map(|volume| text(&volume["image"], "reference"))).collect()
}
fn fault(pod: &Value) -> Option<field::Error> {
    let wrong = |path: field::Path, policy: &Value| {
        (policy != "Always").then(|| field::Error::not_supported(path, policy, &["Always"]))
    };
    let spec = field::Path::new("spec");
    let containers = CONTAINERS.into_iter().find_map(|member| {
        list(&pod["spec"], member).iter().enumerate().find_map(|(i, container)| {
            let path = spec.child(member).index(i).child("imagePullPolicy");
            wrong(path, &container["imagePullPolicy"])
        })
    });
    let volumes = || {
        list(&pod["spec"], "volumes").iter().enumerate().find_map(|(i, volume)| {
            let path = spec.child("volumes").index(i).child("image").child("pullPolicy");
            let image = volume.get("image").filter(|image| image.is_object())?;
            wrong(path, &image["pullPolicy"])
        })
    };
    containers.or_else(volumes)
}
