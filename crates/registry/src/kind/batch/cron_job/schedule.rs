//! Schedules of CronJobs: five fields, or one word. Messages are those of Kubernetes' parser.

/// One of the five fields.
struct Bounds {
    lowest: u32,
    highest: u32,
    /// Names of its values, from the lowest.
    names: &'static [&'static str],
}
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { lowest: 0, highest: 59, names: &[] },
    Bounds { lowest: 0, highest: 23, names: &[] },
    Bounds { lowest: 1, highest: 31, names: &[] },
    Bounds { lowest: 1, highest: 12, names: &MONTHS },
    Bounds { lowest: 0, highest: 6, names: &DAYS },
];
/// Words that stand for five fields.
const WORDS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Whether a text is a schedule.
pub(super) fn parse(text: &str) -> Result<(), String> {
    let text = match text.split_once(char::is_whitespace) {
        Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => {
            rest.trim()
        }
        _ => text,
    };
    if text.starts_with('@') {
        return word(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    let ranges = fields.iter().zip(&FIELDS).flat_map(|(field, bounds)| {
        field.split(',').filter(|part| !part.is_empty()).map(move |part| range(part, bounds))
    });
    ranges.collect()
}

fn word(text: &str) -> Result<(), String> {
    if WORDS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) if is_duration(duration) => Ok(()),
        Some(duration) => Err(format!(
            "failed to parse duration {text}: time: invalid duration {}",
            setpoint_object::field::quote(duration)
        )),
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}
/// Numbers with units: `1h30m`, `-1.5h`, `0`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let n = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(n);
        let has_digit = number.bytes().any(|b| b.is_ascii_digit());
        if !has_digit || number.bytes().filter(|b| *b == b'.').count() > 1 {
            return false;
        }
        let unit_len = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, after) = unit.split_at(unit_len);
        if !matches!(unit, "ns" | "us" | "\u{b5}s" | "\u{3bc}s" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = after;
    }
    !text.is_empty()
}

/// `*`, a number, a name or a range of them, each with a step.
fn range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let mut parts = text.split('/');
    let (ends, step) = (parts.next().unwrap_or_default(), parts.next());
    let mut limits = ends.split('-');
    let (first, last) = (limits.next().unwrap_or_default(), limits.next());
    let (start, mut end) = match first {
        "*" | "?" => (bounds.lowest, bounds.highest),
        first => {
            let start = number_or_name(first, bounds)?;
            let end = last.map_or(Ok(start), |last| number_or_name(last, bounds))?;
            if limits.next().is_some() {
                return Err(format!("too many hyphens: {text}"));
            }
            (start, end)
        }
    };
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step)?;
            if last.is_none() {
                end = bounds.highest;
            }
            step
        }
    };
    if parts.next().is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    let Bounds { lowest, highest, .. } = bounds;
    if start < *lowest {
        return Err(format!("beginning of range ({start}) below minimum ({lowest}): {text}"));
    }
    if end > *highest {
        return Err(format!("end of range ({end}) above maximum ({highest}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}
fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let place = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match place.and_then(|place| u32::try_from(place).ok()) {
        Some(place) => Ok(bounds.lowest + place),
        None => number(text),
    }
}
fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse() {
        Ok(number) if is_number => Ok(number),
        _ => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: {}",
            setpoint_object::field::quote(text),
            if is_number { "value out of range" } else { "invalid syntax" }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is a schedule stays one with other spaces.
        #[test]
        fn any_text_is_a_schedule_or_not(text in r"[-*/,@?a-zA-Z0-9 \u{e9}]{0,24}") {
            let spaced = text.split_whitespace().collect::<Vec<_>>().join("  ");
            prop_assume!(!text.contains('@'));
            prop_assert_eq!(parse(&text).is_ok(), parse(&spaced).is_ok());
        }
        #[test]
        fn numbers_within_their_bounds_are_schedules(
            minute in 0..60_u32, hour in 0..24_u32, day in 1..32_u32, month in 1..13_u32, weekday in 0..7_u32, step in 1..60_u32,
        ) {
            prop_assert_eq!(parse(&format!("{minute}/{step} {hour} {day} {month} {weekday}")), Ok(()));
        }
    }

    #[test]
    fn schedules() {
        for valid in [
            "* * * * *",
            "*/5 0 1,15 jan-MAR sun",
            "0-59/2 ? * * 1-5",
            "@daily",
            "@every 1h30m",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(parse(valid), Ok(()), "{valid}");
        }
        for (text, error) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* 5-3 * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
