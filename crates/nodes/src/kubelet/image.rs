//! Images that cannot be pulled.

/// Why an image cannot exist: the reason of a waiting container, and the message.
pub(crate) fn fault(image: &str, policy: &str) -> Option<(&'static str, String)> {
    if !is_reference(image) {
        let message = format!(
            "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid reference format"
        );
        return Some(("InvalidImageName", message));
    }
    let (host, path) = image.split_once('/').unwrap_or(("", image));
    let is_host = host.contains(['.', ':']) || host == "localhost";
    // RFC 2606 reserves `invalid`: no name in it resolves.
    let is_unknown_host = is_host
        && host.split(':').next().unwrap_or_default().split('.').any(|label| label == "invalid");
    let is_absent = path.ends_with(":404")
        || ["does-not-exist", "nonexistent", "non-existent"].iter().any(|name| path.contains(name));
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

/// Whether a text has the form of an image reference.
fn is_reference(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (path, tag) = match name.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let repository = match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => path,
    };
    let is_part = |part: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(is_inner)
            && part.ends_with(is_inner)
            && part.chars().all(|c| is_inner(c) || matches!(c, '.' | '_' | '-'))
    };
    let is_tag = |tag: &str| {
        (1..=128).contains(&tag.len())
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
            && !tag.starts_with(['.', '-'])
    };
    repository.split('/').all(is_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(|digest| digest.contains(':') && digest.len() > 32)
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
            ("webserver:404", Some("ErrImagePull")),
            ("some bad/Image", Some("InvalidImageName")),
            ("nginx:", Some("InvalidImageName")),
            ("", Some("InvalidImageName")),
        ] {
            assert_eq!(fault(image, "").map(|(reason, _)| reason), reason, "{image}");
        }
        assert_eq!(fault("a.invalid/b", "Never").unwrap().0, "ErrImageNeverPull");
    }
}
