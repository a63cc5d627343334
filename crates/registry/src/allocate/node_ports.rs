//! The range that node ports come from.
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Limits of the ports that are given to requests for any port only when the rest is used up: a
/// 32nd of the range within them, none of a range of at most [`STATIC_MIN`], as KEP-3668.
const STATIC_MIN: u16 = 16;
const STATIC_MAX: u16 = 128;

/// The ports that may be node ports of Services: kube-apiserver's `--service-node-port-range`, in
/// its syntax: `30000-32767`, `30000+2767` or one port. Default: 30000-32767.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePorts {
    first: u16,
    last: u16,
}

/// Why a text is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodePortsError {
    /// A part is not a number.
    #[error("{0:?} is not a port")]
    NotAPort(String),
    /// Both notations at once.
    #[error("unable to parse port range: {0}")]
    Mixed(String),
    /// A port above 65535.
    #[error("the port range cannot be greater than 65535: {0}")]
    TooLarge(String),
    /// It ends before it starts.
    #[error("end port cannot be less than start port: {0}")]
    Reversed(String),
}

impl NodePorts {
    /// Whether a port is one of them.
    pub fn contains(self, port: u16) -> bool {
        RangeInclusive::new(self.first, self.last).contains(&port)
    }
    /// The first port, the last one, and how many are given last. 0 is no port to give.
    pub(super) fn bounds(self) -> (u16, u16, u16) {
        let first = self.first.max(1);
        let n_ports = self.last.saturating_sub(first).saturating_add(1);
        let n_static = match n_ports {
            ..=STATIC_MIN => 0,
            _ => (n_ports / 32).clamp(STATIC_MIN, STATIC_MAX),
        };
        (first, self.last, n_static)
    }
}

impl Default for NodePorts {
    fn default() -> Self {
        Self { first: 30_000, last: 32_767 }
    }
}

impl fmt::Display for NodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for NodePorts {
    type Err = NodePortsError;

    /// An empty text is the default range.
    fn from_str(text: &str) -> Result<Self, NodePortsError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let whole = || text.to_owned();
        let number = |part: &str| -> Result<u64, NodePortsError> {
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            match part.parse() {
                Ok(number) if is_number => Ok(number),
                Err(_) if is_number && !part.is_empty() => Err(NodePortsError::TooLarge(whole())),
                _ => Err(NodePortsError::NotAPort(part.to_owned())),
            }
        };
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (None, None) => (number(text)?, number(text)?),
            (Some((first, last)), None) => (number(first)?, number(last)?),
            (None, Some((first, more))) => {
                let first = number(first)?;
                (first, first.saturating_add(number(more)?))
            }
            (Some(_), Some(_)) => return Err(NodePortsError::Mixed(whole())),
        };
        let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) else {
            return Err(NodePortsError::TooLarge(whole()));
        };
        if last < first {
            return Err(NodePortsError::Reversed(whole()));
        }
        Ok(Self { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_written_in_three_ways() {
        let check = |text: &str, expected: &str| {
            let ports = text.parse::<NodePorts>();
            let found = ports.map_or_else(|error| error.to_string(), |ports| ports.to_string());
            assert_eq!(found, expected, "{text:?}");
        };
        check("", "30000-32767");
        check(" 31000-31010 ", "31000-31010");
        check("31000+5", "31000-31005");
        check("31000", "31000-31000");
        check("40000-30000", "end port cannot be less than start port: 40000-30000");
        check("1-70000", "the port range cannot be greater than 65535: 1-70000");
        check(
            "1+18446744073709551615",
            "the port range cannot be greater than 65535: 1+18446744073709551615",
        );
        check(
            "1-99999999999999999999",
            "the port range cannot be greater than 65535: 1-99999999999999999999",
        );
        check("x", "\"x\" is not a port");
        check("-5", "\"\" is not a port");
        check("8080-8085-9", "\"8085-9\" is not a port");
        check("1+2-3", "unable to parse port range: 1+2-3");
    }

    #[test]
    fn ports_that_are_given_last_are_a_part_of_the_range() {
        let of = |text: &str| text.parse::<NodePorts>().unwrap().bounds();
        assert_eq!(NodePorts::default().bounds(), (30_000, 32_767, 86));
        assert_eq!(of("31000-31015").2, 0);
        assert_eq!(of("31000-31016").2, 16);
        assert_eq!(of("0-65535"), (1, 65_535, 128));
    }
}
