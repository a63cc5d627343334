//! Volumes of pods.
use super::fill::{Fill, Object, empty};
use super::{container, storage};

/// `0644`, as JSON writes it.
const MODE: i32 = 0o644;
/// An hour, the lifetime of projected service account tokens.
const TOKEN_SECONDS: i64 = 3600;

/// Volume.
pub(super) fn volume(volume: &mut Object) {
    if !volume.keys().any(|name| name != "name") {
        volume.insert("emptyDir".to_owned(), empty());
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.object(source) {
            source.absent("defaultMode", MODE);
        }
    }
    if let Some(downward) = volume.object("downwardAPI") {
        field_refs(downward);
    }
    if let Some(projected) = volume.object("projected") {
        for source in projected.each("sources") {
            if let Some(token) = source.object("serviceAccountToken") {
                token.absent("expirationSeconds", TOKEN_SECONDS);
            }
            if let Some(downward) = source.object("downwardAPI") {
                field_refs(downward);
            }
        }
    }
    if let Some(path) = volume.object("hostPath") {
        path.absent("type", "");
    }
    if let Some(image) = volume.object("image") {
        let policy = container::pull_policy(image.text("reference"));
        image.absent("pullPolicy", policy);
    }
    let template = volume.object("ephemeral").and_then(|e| e.object("volumeClaimTemplate"));
    if let Some(spec) = template.and_then(|template| template.object("spec")) {
        storage::claim_spec(spec);
    }
}

fn field_refs(downward: &mut Object) {
    for item in downward.each("items") {
        if let Some(field) = item.object("fieldRef") {
            field.absent("apiVersion", "v1");
        }
    }
}
