//! Quantities in canonical form (spec: api-server §13).
//!
//! A quantity is stored exactly as a whole number of billionths. Smaller fractions are rounded away
//! from zero. The text keeps the suffix family of the input.
//!
//! | family | suffixes | canonical text | larger ones are clamped to |
//! |---|---|---|---|
//! | decimal | `n u m` (none) `k M G T P E` | the largest suffix that leaves a whole number | 10^27 |
//! | binary | `Ki Mi Gi Ti Pi Ei` | the same; decimal for fractions and below 1024 | 2^63 - 1 |
//! | decimal exponent | `e3`, `E-6` | the same with exponents that are multiples of three | 10^27 |
//!
//! Sums and differences may be larger than any text: what is more than a quantity compares as more.
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};

/// A parsed quantity. Displays in canonical form.
///
/// Two quantities are equal if their canonical texts are equal. [`Quantity::compare`] compares
/// values across families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    nanos: i128,
    family: Family,
}
/// Why a text is not a quantity. Displays as the API's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseQuantityError {
    /// The text does not match the pattern.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}
/// The suffixes of the decimal family, by power of ten.
const DECIMAL: [(i32, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];
/// The suffixes of the binary family, each 1024 times the previous one.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANO: i128 = 1_000_000_000;
/// The largest binary quantity, in billionths: 2^63 - 1 units, as the reference's.
const BINARY_NANOS_MAX: i128 = i64::MAX as i128 * NANO;
/// The largest decimal quantity, in billionths: 10^27 units. The reference has no limit. Ten times
/// as many still fit in 128 bits.
const NANOS_MAX: i128 = 1_000_000_000_000_000_000_000_000_000 * NANO;
/// The largest sum, in billionths: 85 times the largest quantity.
const SUM_NANOS_MAX: i128 = 1 << 126;

impl Quantity {
    /// Parses and canonicalizes.
    ///
    /// # Errors
    ///
    /// If the text is not a quantity. Displays as the API's message.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(ParseQuantityError::Format),
        };
        let number_len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(number_len);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => {
                rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()))
            }
            None => ("", rest),
        };
        if !has_suffix_form(suffix) {
            return Err(ParseQuantityError::Format);
        }
        // No digits are zero, as in the reference: `m` and `-` are quantities.
        let (family, scale) = parse_suffix(suffix).ok_or(ParseQuantityError::Suffix)?;
        let nanos = match scale {
            Scale::Ten(power) => shift_decimal(whole, fraction, power.saturating_add(9)),
            // A binary power times a decimal fraction: exact in 128 bits for eighteen digits of the
            // fraction.
            Scale::Two(power) => binary_nanos(whole, fraction, power),
        };
        Ok(Self::of(if negative { -nanos } else { nanos }, family))
    }
    fn of(nanos: i128, family: Family) -> Self {
        Self { text: canonical(nanos, family), nanos, family }
    }
    /// A whole number of units, in the decimal family.
    pub fn from_units(units: i64) -> Self {
        Self::of(i128::from(units) * NANO, Family::Decimal)
    }
    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
    /// The value in units; fractions are rounded away from zero, and larger values are clamped.
    pub fn value(&self) -> i64 {
        self.scaled(NANO)
    }
    /// The value in thousandths; smaller fractions are rounded away from zero, and larger values
    /// are clamped.
    pub fn milli_value(&self) -> i64 {
        self.scaled(NANO / 1000)
    }
    fn scaled(&self, unit: i128) -> i64 {
        let rounded = div_away_from_zero(self.nanos, unit);
        let cut = rounded.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        i64::try_from(cut).unwrap_or_default()
    }
    /// The same in whole thousandths; smaller fractions are rounded away from zero.
    pub fn in_thousandths(&self) -> Self {
        const MILLI: i128 = NANO / 1000;
        Self::of(div_away_from_zero(self.nanos, MILLI) * MILLI, self.family)
    }
    /// In units, as near as a floating point number comes.
    pub fn approximate(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }
    /// Compares the values, regardless of suffixes.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
    /// Whether it is a whole number of units.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }
    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }
    /// The family of a sum: if `self` is zero, the other's.
    fn family_with(&self, other: &Self) -> Family {
        if self.is_zero() { other.family } else { self.family }
    }
}
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}
impl Default for Quantity {
    fn default() -> Self {
        Self::from_units(0)
    }
}
/// Exact up to 85 times the largest quantity, and clamped to that. The sum has the suffix family of
/// the first operand.
impl Add<&Quantity> for &Quantity {
    type Output = Quantity;
    fn add(self, other: &Quantity) -> Quantity {
        Quantity::of(bounded(self.nanos.saturating_add(other.nanos)), self.family_with(other))
    }
}
/// Exact as a sum is. The difference has the suffix family of the first operand.
impl Sub<&Quantity> for &Quantity {
    type Output = Quantity;
    fn sub(self, other: &Quantity) -> Quantity {
        Quantity::of(bounded(self.nanos.saturating_sub(other.nanos)), self.family_with(other))
    }
}

/// Keeps sums far from the limits of 128 bits.
fn bounded(nanos: i128) -> i128 {
    nanos.clamp(-SUM_NANOS_MAX, SUM_NANOS_MAX)
}

/// The factor of a suffix.
#[derive(Debug, Clone, Copy)]
enum Scale {
    Ten(i32),
    Two(u32),
}
/// Whether a text has the form of a suffix: letters, then a sign, then digits.
fn has_suffix_form(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}
fn parse_suffix(suffix: &str) -> Option<(Family, Scale)> {
    if let Some((power, _)) = DECIMAL.iter().find(|(_, s)| *s == suffix) {
        return Some((Family::Decimal, Scale::Ten(*power)));
    }
    if let Some(idx) = BINARY.iter().position(|s| *s == suffix) {
        return Some((Family::Binary, Scale::Two(u32::try_from(idx).ok()? * 10 + 10)));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let (negative, digits) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // The reference reads 64 bits. Larger exponents have the same effect as 1000.
    let power = i32::try_from(digits.parse::<i64>().ok()?.min(1000)).ok()?;
    Some((Family::Exponent, Scale::Ten(if negative { -power } else { power })))
}

/// `whole.fraction` times ten to the `power`, rounded up to a whole number and clamped.
fn shift_decimal(whole: &str, fraction: &str, power: i32) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes());
    let n_digits = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(i64::from(power));
    let (mut out, mut n_taken, mut round_up) = (0_i128, 0_i64, false);
    for byte in digits {
        let digit = i128::from(byte - b'0');
        if n_taken < n_digits {
            out = (out * 10 + digit).min(NANOS_MAX);
        } else if digit != 0 {
            round_up = true;
            break;
        }
        n_taken += 1;
    }
    while n_taken < n_digits && out != 0 && out < NANOS_MAX {
        out = (out * 10).min(NANOS_MAX);
        n_taken += 1;
    }
    (out + i128::from(round_up)).min(NANOS_MAX)
}
/// `whole.fraction` times two to the `power`, in billionths, rounded up and clamped.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let factor = 1_i128 << power;
    let units = shift_decimal(whole, "", 0);
    let whole_nanos = units.saturating_mul(factor).saturating_mul(NANO);
    // Eighteen digits of the fraction; further digits round up the last one.
    let fraction_atto = shift_decimal("", fraction, 18);
    let fraction_nanos = match fraction_atto.checked_mul(factor) {
        Some(product) => div_away_from_zero(product, NANO),
        // 2^60 times 10^18 is over 2^119 and fits. There are no larger factors.
        None => BINARY_NANOS_MAX,
    };
    whole_nanos.saturating_add(fraction_nanos).min(BINARY_NANOS_MAX)
}
fn div_away_from_zero(value: i128, unit: i128) -> i128 {
    value / unit + (value % unit).signum()
}

fn canonical(nanos: i128, family: Family) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let units = nanos / NANO;
    if family == Family::Binary && nanos % NANO == 0 && units.abs() >= 1024 {
        let (mut mantissa, mut suffix) = (units, "");
        for next in BINARY {
            if mantissa % 1024 != 0 {
                break;
            }
            (mantissa, suffix) = (mantissa / 1024, next);
        }
        return suffixed(mantissa, suffix);
    }
    let (mut mantissa, mut power) = (nanos, -9);
    // There is no decimal suffix above `E`. The reference writes none then, which is another value.
    let power_max = if family == Family::Exponent { i32::MAX } else { 18 };
    while mantissa % 1000 == 0 && power < power_max {
        (mantissa, power) = (mantissa / 1000, power + 3);
    }
    if family == Family::Exponent {
        return if power == 0 { mantissa.to_string() } else { format!("{mantissa}e{power}") };
    }
    let suffix = DECIMAL.iter().find(|(p, _)| *p == power).map_or("", |(_, suffix)| suffix);
    suffixed(mantissa, suffix)
}

fn suffixed(mantissa: i128, suffix: &str) -> String {
    [itoa::Buffer::new().format(mantissa), suffix].concat()
}

#[cfg(test)]
mod tests;
