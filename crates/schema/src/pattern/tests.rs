use super::*;
use proptest::prelude::*;
use setpoint_cel::pattern::DEFINITION_BYTES_MAX;

fn matches(pattern: &str, text: &str) -> bool {
    let pattern = Pattern::new(pattern, budget());
    Matcher::default().is_match(&pattern, text, &mut 0).unwrap()
}

#[track_caller]
fn refused(pattern: &str, what: &str) {
    let error = translate(pattern).expect_err(pattern).to_string();
    assert_eq!(error, format!("error parsing regexp: {what}"), "{pattern}");
}

#[test]
fn classes_are_ascii_and_braces_literal_as_in_go() {
    assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "٣"));
    assert!(matches(r"^[\w.]+$", "a_1.") && !matches(r"^[\w.]+$", "é"));
    assert!(matches("^{a}$", "{a}") && matches("^a{2}$", "aa") && matches("^a{,2}$", "a{,2}"));
    assert!(matches("^a{02}$", "a{02}") && matches("^x{2,1$", "x{2,1"));
    assert!(matches("^[[a]+$", "[a") && matches("^[a&&b]+$", "&") && matches("^[[:alpha:]]$", "q"));
    assert!(matches("^[]a]+$", "]a") && matches(r"^[^]]$", "x") && matches("^[a~~b-c]+$", "~"));
    assert!(matches(r"^\S \D\W$", "a b-") && matches(r"^[[:^alpha:]]$", "1"));
    assert!(matches(r"\bé\B", "é ") || !matches(r"^\w$", "é"));
}

#[test]
fn syntax_of_go_is_accepted() {
    for (pattern, text, expected) in [
        (r"^\pL+$", "añ", true),
        (r"^\p{L}+$", "a1", false),
        (r"^\p{Greek}\p{Lu}$", "αA", true),
        (r"^\p{^Greek}\P{^Lu}$", "aA", true),
        (r"^[\p{Nd}\PL]+$", "٣-", true),
        (r"^\p{Letter}\p{Lowercase_Letter}\p{lowercaseletter}$", "aaa", true),
        (r"^\p{Any}\p{ASCII}\p{Assigned}$", "éaa", true),
        (r"\p{Cs}|^\P{Cs}$", "a", true),
        (r"^a\Q.+*\E$", "a.+*", true),
        (r"^\Qab\E+$", "abb", true),
        (r"\Aa\z", "a", true),
        (r"\Aa\z", "a\n", false),
        ("a$", "a\n", false),
        ("(?m)^b$", "a\nb", true),
        ("a.b", "a\nb", false),
        ("(?s)a.b", "a\nb", true),
        ("(?s-i:a.b)", "a\nb", true),
        ("(?i)straße", "STRAßE", true),
        ("(?i:A)a", "aA", false),
        ("(?i)(?-i:A)a", "AA", true),
        (r"(?i)^\w$", "\u{17f}", true),
        ("(?i)^[k]$", "\u{212a}", true),
        ("(?P<n>a)(?<m>b)", "ab", true),
        ("(?Ui)a+?", "A", true),
        ("(?ii)a", "A", true),
        ("(?)a", "a", true),
        ("^(?:a+(?i)?)$", "", true),
        ("^a+(?i){2}$", "a", false),
        ("^*a", "a", true),
        (r"^\x41\x{1F600}\101\a\-\_$".trim_end_matches(r"\_$"), "A\u{1F600}A\u{7}-", true),
        (r"\x{D800}", "a", false),
        (r"[\x{D7FF}-\x{E000}]", "\u{E000}", true),
        (r"[\x{D800}-\x{DFFF}]", "a", false),
        ("^a{1000}$", "a", false),
        ("a||b", "", true),
        ("()", "", true),
        ("^[a-]$", "-", true),
        ("^[^-a]$", "b", true),
        ("a #b", "a #b", true),
        ("é+", "é", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text:?}");
    }
}

#[test]
fn faults_read_as_in_go() {
    assert_eq!(translate("a+").unwrap(), "a+");
    refused("(", "missing closing ): `(`");
    refused("a(b", "missing closing ): `a(b`");
    refused("a)b", "unexpected ): `a)b`");
    refused("[a", "missing closing ]: `[a`");
    refused("x[^", "missing closing ]: `[^`");
    refused("[]", "missing closing ]: `[]`");
    refused("(?!a)", "invalid or unsupported Perl syntax: `(?!`");
    refused("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
    refused("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`");
    refused("(?x)a", "invalid or unsupported Perl syntax: `(?x`");
    refused("(?#a)", "invalid or unsupported Perl syntax: `(?#`");
    refused("(?P=n)", "invalid or unsupported Perl syntax: `(?P`");
    refused("(?", "invalid or unsupported Perl syntax: `(?`");
    refused("(?<=a)b", "invalid named capture: `(?<=a)b`");
    refused("(?P<n-m>a)", "invalid named capture: `(?P<n-m>`");
    refused("(?P<n", "invalid named capture: `(?P<n`");
    refused("*a", "missing argument to repetition operator: `*`");
    refused("a|+?b", "missing argument to repetition operator: `+?`");
    refused("({2})", "missing argument to repetition operator: `{2}`");
    refused("a**", "invalid nested repetition operator: `**`");
    refused("a*?+?", "invalid nested repetition operator: `*?+?`");
    refused("a{2}{3}", "invalid nested repetition operator: `{2}{3}`");
    refused("a{1001}", "invalid repeat count: `{1001}`");
    refused("a{2,1}", "invalid repeat count: `{2,1}`");
    refused("a{1,99999999999999999999}?", "invalid repeat count: `{1,99999999999999999999}`");
    refused("(a{1000}){1000}", "invalid repeat count: `{1000}`");
    refused("((a{11}){10}){10}", "invalid repeat count: `{10}`");
    refused("a\\", "trailing backslash at end of expression: ``");
    refused(r"\Z", r"invalid escape sequence: `\Z`");
    refused(r"\C", r"invalid escape sequence: `\C`");
    refused(r"(a)\1", r"invalid escape sequence: `\1`");
    refused(r"\8", r"invalid escape sequence: `\8`");
    refused(r"\xg1", r"invalid escape sequence: `\xg1`");
    refused(r"\x{110000}", r"invalid escape sequence: `\x{110000`");
    refused(r"\é", r"invalid escape sequence: `\é`");
    refused(r"[z-a]", "invalid character class range: `z-a`");
    refused(r"[a-\d]", r"invalid escape sequence: `\d`");
    refused(r"[[:foo:]]", "invalid character class range: `[:foo:]`");
    refused(r"\p{Foo}", r"invalid character class range: `\p{Foo}`");
    refused(r"\p{Grek}", r"invalid character class range: `\p{Grek}`");
    refused(r"\p{sc=Greek}", r"invalid character class range: `\p{sc=Greek}`");
    refused(r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`");
    refused(r"\pX", r"invalid character class range: `\pX`");
    refused(r"\p{L", r"invalid character class range: `\p{L`");
    let large = "(?:[a-z]{1000})".repeat(4_000);
    refused(&large, &format!("expression too large: `{large}`"));
    let deep = format!("{}{}", "(".repeat(1_001), ")".repeat(1_001));
    refused(&deep, &format!("expression nests too deeply: `{deep}`"));
}

#[test]
fn programs_are_compiled_late_bounded_and_freed() {
    let budget = budget();
    let large = || Pattern::new(&"[a-z]{1000}".repeat(60), budget.clone());
    let patterns: Vec<Pattern> = std::iter::repeat_with(large).take(12).collect();
    assert_eq!(budget.bytes(), 0);
    let mut matcher = Matcher::default();
    for pattern in &patterns {
        assert!(!matcher.is_match(pattern, "a", &mut 0).unwrap());
        assert!(matcher.bytes <= MATCHER_BYTES_MAX + PROGRAM_BYTES_MAX + 2 * SCRATCH_BYTES);
    }
    let kept = patterns.iter().filter(|pattern| pattern.is_stored()).count();
    assert!((1..12).contains(&kept), "{kept}");
    assert!(budget.bytes() <= DEFINITION_BYTES_MAX);
    drop(patterns);
    assert_eq!(budget.bytes(), 0);
}

#[test]
fn a_program_that_is_too_large_says_so() {
    let source = "[a-z]{1000}".repeat(400);
    let pattern = Pattern::new(&source, budget());
    let mut steps = 0;
    let error = Matcher::default().is_match(&pattern, "a", &mut steps).unwrap_err();
    let why = "it compiles to more than 16777216 bytes";
    assert_eq!(error, format!("cannot be matched against '{source}': {why}"));
    assert!(steps >= PROGRAM_BYTES_MAX / STEP_COMPILED_BYTES);
}

proptest! {
    /// Every pattern that Go's syntax accepts can be compiled, unless it is too large.
    #[test]
    fn what_is_accepted_compiles(pattern in r"[a-c(){}\[\]^$.|?*+\\,:0-9iPpLdws<>=QEé-]{0,16}") {
        if translate(&pattern).is_ok() {
            let pattern = Pattern::new(&pattern, budget());
            let result = Matcher::default().is_match(&pattern, "abc", &mut 0);
            prop_assert!(result.as_ref().is_ok() || result.as_ref().is_err_and(|e| e.contains("bytes")), "{:?}", result);
        }
    }
}
