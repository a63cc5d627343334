//! Images that cannot be pulled.
use setpoint_object::image::ImageReference;

/// Why an image cannot exist: the reason of a waiting container, and the message.
pub(crate) fn fault(image: &str, policy: &str) -> Option<(&'static str, String)> {
    let Some(reference) = ImageReference::parse(image) else {
        let message = format!(
            "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid reference format"
        );
        return Some(("InvalidImageName", message));
    };
    let host = reference.domain.unwrap_or_default().split(':').next().unwrap_or_default();
    // RFC 2606 reserves `invalid`: no name in it resolves.
    let is_unknown_host = host.split('.').any(|label| label == "invalid");
    let tag = reference.tag.unwrap_or_default();
    let is_absent = tag == "404"
        || ["does-not-exist", "doesnt-exist", "nonexistent", "non-existent"]
            .iter()
            .any(|name| reference.path.contains(name) || tag.contains(name));
    if !is_unknown_host && !is_absent {
        return None;
    }
    if policy == "Never" {
        let message =
            format!("Container image \"{image}\" is not present with pull policy of Never");
        return Some(("ErrImageNeverPull", message));
    }
    let why = match is_unknown_host {
        true => format!("dial tcp: lookup {host}: no such host"),
        false => "not found".to_owned(),
    };
    let message = format!(
        "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {why}"
    );
    Some(("ErrImagePull", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_that_cannot_exist_have_a_fault() {
        for (image, reason) in [
            ("nginx", None),
            ("registry.k8s.io/pause:3.10", None),
            ("localhost:5000/a/b:v1", None),
            ("invalid.registry.k8s.io/invalid/alpine:3.1", Some("ErrImagePull")),
            ("example.com/does-not-exist:1", Some("ErrImagePull")),
            ("localhost/some-image-that-doesnt-exist", Some("ErrImagePull")),
            ("webserver:404", Some("ErrImagePull")),
            ("foo:non-existent", Some("ErrImagePull")),
            ("some bad/Image", Some("InvalidImageName")),
            ("nginx:", Some("InvalidImageName")),
            ("", Some("InvalidImageName")),
        ] {
            assert_eq!(fault(image, "").map(|(reason, _)| reason), reason, "{image}");
        }
        assert_eq!(fault("a.invalid/b", "Never").unwrap().0, "ErrImageNeverPull");
    }
}
