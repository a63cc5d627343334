//! Names of container images.

/// Maximum length of the name of an image without its domain, in bytes.
const NAME_MAX: usize = 255;
/// The domain of names without one, and its former name.
const HUB: [&str; 2] = ["docker.io", "index.docker.io"];
/// What stands before a name of one part of that domain.
const LIBRARY: &str = "library/";
/// Maximum length of a tag, in bytes.
const TAG_MAX: usize = 128;
/// Algorithms of digests, with the number of hexadecimal digits of their values.
const ALGORITHMS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];
/// Length of the identifier of an image, which is not its name.
const IDENTIFIER_LEN: usize = 64;

/// The name of an image: `[domain/]path[:tag][@digest]`, as the distribution specification has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    /// Host and port of the registry, if the name has them.
    pub domain: Option<&'a str>,
    /// The name within the registry.
    pub path: &'a str,
    /// The text after the colon.
    pub tag: Option<&'a str>,
    /// Algorithm and value: `sha256:…`.
    pub digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    /// Reads a name; `None` if the text does not name an image.
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() == IDENTIFIER_LEN && is_hex(text) {
            return None;
        }
        let (name, digest) = text.split_once('@').map_or((text, None), |(n, d)| (n, Some(d)));
        let (domain, path) = match name.split_once('/').filter(|(first, _)| is_domain(first)) {
            Some((domain, path)) => (Some(domain), path),
            None => (None, name),
        };
        let (path, tag) = path.split_once(':').map_or((path, None), |(p, t)| (p, Some(t)));
        let is_short = !path.contains('/') && domain.is_none_or(|domain| HUB.contains(&domain));
        let length = path.len() + if is_short { LIBRARY.len() } else { 0 };
        let is_path = length <= NAME_MAX && path.split('/').all(is_path_part);
        let is_valid = is_path
            && domain.is_none_or(is_address)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        is_valid.then_some(Self { domain, path, tag, digest })
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
/// Whether the text before the first slash is a domain, not a part of the path.
fn is_domain(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first != first.to_lowercase()
}
/// `host[:port]`.
fn is_address(domain: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if let Some((six, port)) = domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_six = |b: u8| b.is_ascii_hexdigit() || b == b':';
        return !six.is_empty()
            && six.bytes().all(is_six)
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = domain.split_once(':').map_or((domain, None), |(h, p)| (h, Some(p)));
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}
/// Lower-case letters and digits, with single separators between them: `.`, `_`, `__` or dashes.
fn is_path_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    part.starts_with(is_word) && part.ends_with(is_word) && part.split(is_word).all(is_separator)
}
fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=TAG_MAX).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}
fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, value)| {
        ALGORITHMS.contains(&(algorithm, value.len())) && is_hex(value)
    })
}

#[cfg(test)]
mod tests {
    use super::ImageReference;

    #[test]
    fn names_have_parts() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        let whole = format!("localhost:5000/a/b-c__d:v1@{digest}");
        let read = ImageReference::parse(&whole).unwrap();
        assert_eq!((read.domain, read.path), (Some("localhost:5000"), "a/b-c__d"));
        assert_eq!((read.tag, read.digest), (Some("v1"), Some(&*digest)));
        for text in ["nginx", "a/b", "Example.com/a", "a.b:1/c", "a--b", "a:_x", "[::1]:5000/a"] {
            assert!(ImageReference::parse(text).is_some(), "{text}");
        }
        // The hub's names of one part are longer than they look.
        for (domain, length) in [("", 247), ("docker.io/", 247), ("a.b/", 255), ("a/", 253)] {
            let name = |length| format!("{domain}{}", "a".repeat(length));
            assert!(ImageReference::parse(&name(length)).is_some(), "{domain}");
            assert!(ImageReference::parse(&name(length + 1)).is_none(), "{domain}");
        }
    }

    #[test]
    fn other_texts_name_no_image() {
        let identifier = "0f".repeat(32);
        let (long_tag, long_path) = (format!("a:{}", "x".repeat(129)), "a".repeat(248));
        let long_digest = format!("a@sha256:{}", "0f".repeat(33));
        for text in [
            "",
            "nginx:",
            "some bad/Image",
            "Image",
            "a..b",
            "a___b",
            "-a",
            "a/",
            "/a",
            "a:.x",
            "a@",
            "a@sha256:0f",
            "-a.b/c",
            "a.b:/c",
            "a.b:x/c",
            &identifier,
            &long_tag,
            &long_path,
            &long_digest,
        ] {
            assert_eq!(ImageReference::parse(text), None, "{text}");
        }
    }
}
