//! The formats that are enforced on strings.
use setpoint_cel::formats;
use setpoint_cel::value::{Duration, Timestamp};
use setpoint_object::name;
use setpoint_object::url::Url;
use std::borrow::Cow;
use std::net::Ipv6Addr;

/// A format without its dashes, which do not count.
fn normal(format: &str) -> Cow<'_, str> {
    match format.contains('-') {
        true => format.replace('-', "").into(),
        false => format.into(),
    }
}

/// Whether a format of strings is known; unknown ones are ignored, with a warning when a definition
/// is written.
pub(crate) fn is_known(format: &str) -> bool {
    matches!(
        &*normal(format),
        "bsonobjectid"
            | "uri"
            | "email"
            | "hostname"
            | "ipv4"
            | "ipv6"
            | "cidr"
            | "mac"
            | "uuid"
            | "uuid3"
            | "uuid4"
            | "uuid5"
            | "isbn"
            | "isbn10"
            | "isbn13"
            | "creditcard"
            | "ssn"
            | "hexcolor"
            | "rgbcolor"
            | "byte"
            | "password"
            | "date"
            | "duration"
            | "datetime"
            | "k8sshortname"
            | "k8slongname"
    )
}

/// Whether a string has a format. Formats that are unknown or not of strings accept everything.
pub(super) fn valid(format: &str, text: &str) -> bool {
    match &*normal(format) {
        "bsonobjectid" => text.len() == 24 && hex(text),
        "uri" => Url::parse_request(text).is_ok(),
        "email" => email(text),
        "hostname" => hostname(text),
        // An IPv6 address may end in an IPv4 one.
        "ipv4" => ipv4(text) || text.contains('.') && text.parse::<Ipv6Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some(b'3')),
        "uuid4" => uuid(text, Some(b'4')),
        "uuid5" => uuid(text, Some(b'5')),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => credit_card(text),
        "ssn" => groups(text, &['-', ' '], &[3, 2, 4]),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && hex(digits)
        }
        "rgbcolor" => rgb_color(text),
        "byte" => formats::is_base64(text),
        "date" => Timestamp::parse_date(text).is_some(),
        "duration" => Duration::parse_lenient(text).is_some(),
        "datetime" => formats::is_date_time(text),
        "k8sshortname" => name::dns1123_label(text).is_empty(),
        "k8slongname" => name::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

fn hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(at), true) => &text[at + 1..text.len() - 1],
        _ => text,
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        let atom = |s: &str| {
            !s.is_empty()
                && s.split('.').all(|part| {
                    !part.is_empty()
                        && part
                            .chars()
                            .all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
                })
        };
        let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
        (quoted || atom(local)) && atom(domain)
    })
}

/// One label, with a hyphen after its first character at most; or several, where the last has
/// letters only, at least two. As the reference's expression has it.
fn hostname(text: &str) -> bool {
    let letter = |c: char| c.is_alphabetic();
    let of_label = |c: char| c.is_alphabetic() || c.is_ascii_digit() || "$+<=>^`|~".contains(c);
    let is_label = |label: &str, inner: &dyn Fn(char) -> bool| {
        label.starts_with(of_label) && label.len() <= 63 && label.chars().all(inner)
    };
    match text.rsplit_once('.') {
        None => {
            let Some(first) = text.chars().next() else { return false };
            let rest = &text[first.len_utf8()..];
            is_label(text, &|_| true)
                && rest.strip_prefix('-').unwrap_or(rest).chars().all(of_label)
        }
        Some((labels, last)) => {
            let is_last = last.chars().count() >= 2 && last.len() <= 63 && last.chars().all(letter);
            let inner = |c: char| of_label(c) || c == '-';
            let is_other = |label: &str| is_label(label, &inner) && label.ends_with(of_label);
            is_last && text.len() <= 255 && labels.split('.').all(is_other)
        }
    }
}

/// A number of nothing but digits, zeros before it too.
fn decimal(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// An IPv4 address, whose numbers may begin with zeros.
fn ipv4(text: &str) -> bool {
    let mut parts = text.split('.');
    parts.by_ref().take(4).filter_map(decimal).count() == 4 && parts.next().is_none()
}

fn cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        decimal(bits).is_some_and(|bits| {
            ipv4(address) && bits <= 32 || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
        })
    })
}

fn mac(text: &str) -> bool {
    let parts = |separator: char, size: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == size && hex(part))
    };
    parts(':', 2, &[6, 8, 20]) || parts('-', 2, &[6, 8, 20]) || parts('.', 4, &[3, 4, 10])
}

fn uuid(text: &str, version: Option<u8>) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    formats::is_uuid(text)
        && version.is_none_or(|version| {
            digits[12] == version
                && (version == b'3'
                    || matches!(digits[16], b'8' | b'9' | b'a' | b'b' | b'A' | b'B'))
        })
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let bytes = text.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let check = match bytes[9] {
        b'X' | b'x' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = bytes[..9].iter().zip(1..).map(|(b, i)| u32::from(b - b'0') * i).sum();
    (sum + 10 * check).is_multiple_of(11)
}

fn isbn13(text: &str) -> bool {
    let text = without_separators(text);
    text.len() == 13
        && text.bytes().all(|b| b.is_ascii_digit())
        && text
            .bytes()
            .enumerate()
            .map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 })
            .sum::<u32>()
            .is_multiple_of(10)
}

fn credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let luhn: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, digit)| match (i % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    (13..=19).contains(&digits.len())
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, ' ' | '-'))
        && luhn.is_multiple_of(10)
}

fn groups(text: &str, separators: &[char], lengths: &[usize]) -> bool {
    let parts: Vec<&str> = text.split(separators).collect();
    parts.len() == lengths.len()
        && parts
            .iter()
            .zip(lengths)
            .all(|(part, length)| part.len() == *length && part.bytes().all(|b| b.is_ascii_digit()))
}

fn rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')'));
    inner.is_some_and(|inner| {
        let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
        parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::valid;

    #[test]
    fn formats_accept_and_refuse() {
        for (format, good, bad) in [
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("uri", "https://a/b", "a b"),
            ("uri", "/a", "http://a:b/"),
            ("uri", "a:b", "/%zz"),
            ("email", "a@b.c", "a@"),
            ("hostname", "a-b.example", "-a"),
            ("hostname", "a", "a.b"),
            ("hostname", "a-bc", "ab-c"),
            ("hostname", "1.xy", "x.y1"),
            ("hostname", "a.b.cd", "a..cd"),
            ("hostname", "é.com", "a_b.com"),
            ("hostname", "a-", "a-.com"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv4", "010.002.3.4", "1.2.3.256"),
            ("ipv4", "::ffff:1.2.3.4", "::1"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "010.0.0.0/08", "10.0.0.0.0/8"),
            ("mac", "01:02:03:04:05:ab", "01:02"),
            ("uuid", "a8098c1a-f86e-11da-bd1a-00112444be1e", "a8098c1a"),
            (
                "uuid4",
                "a8098c1a-f86e-41da-bd1a-00112444be1e",
                "a8098c1a-f86e-11da-bd1a-00112444be1e",
            ),
            ("isbn", "0321751043", "0321751041"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "11-111-1111"),
            ("hexcolor", "#fff", "#ff"),
            ("rgbcolor", "rgb(1,2,255)", "rgb(1,2,256)"),
            ("byte", "YQ==", "YQ"),
            ("date", "2020-02-29", "2021-02-29"),
            ("date-time", "2020-01-01T00:00:00Z", "2020-01-01"),
            ("duration", "1h30m", "1x"),
            ("date-time", "2020-01-01t00:00:00.5+01:00", "2020-01-01 00:00:00Z"),
            ("duration", "1 day", "day"),
            ("duration", "1 week 2 days", "1 x"),
            ("duration", "5 min", "5"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "A"),
        ] {
            assert!(valid(format, good), "{format} {good}");
            assert!(!valid(format, bad), "{format} {bad}");
        }
        assert!(valid("password", "") && valid("foo-fmt", "x"));
    }
}
