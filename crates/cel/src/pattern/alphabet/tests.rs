use crate::pattern::{PatternError, Regex, translate};
use proptest::prelude::*;

/// All matches, over the pattern's alphabet and in UTF-8.
fn both(pattern: &str, text: &str) -> [Vec<String>; 2] {
    let translated = translate(pattern).unwrap();
    let compile = |is_large: bool| Regex::compile(&translated, usize::MAX, |_| is_large).unwrap();
    [true, false].map(compile).map(|regex| {
        let mut scratch = regex.scratch();
        let (found, _) = regex.find_all(&mut scratch, text, usize::MAX).unwrap();
        assert_eq!(regex.is_match(&mut scratch, text), !found.is_empty());
        assert_eq!(regex.find(&mut scratch, text), found.first().copied());
        found.into_iter().map(String::from).collect()
    })
}

#[test]
fn a_pattern_finds_the_same_over_its_alphabet() {
    for (pattern, text, expected) in [
        (r"\pL+", "añb1ж", &["añb", "ж"][..]),
        (r"[^é]", "éa\u{10ffff}é", &["a", "\u{10ffff}"]),
        ("é*", "éabé", &["é", "", "é"]),
        (r"(?m)^\pL$", "é\nb\nж", &["é", "b", "ж"]),
        (r"\b\w", "éa b", &["a", "b"]),
        ("(?i)É", "éÉe", &["é", "É"]),
        (r"[\x{D7FF}-\x{E000}]", "\u{D7FF}\u{E000}\u{E001}", &["\u{D7FF}", "\u{E000}"]),
        (r"[\x{D800}-\x{DFFF}]|a", "éa", &["a"]),
        ("жд|ж", "жждж", &["ж", "жд", "ж"]),
    ] {
        let [over_alphabet, in_utf8] = both(pattern, text);
        assert_eq!(over_alphabet, expected, "{pattern}");
        // In UTF-8 an empty match is looked for between characters only, as here.
        assert_eq!(in_utf8, expected, "{pattern}");
    }
}

#[test]
fn a_host_name_with_the_letters_of_all_languages_takes_little() {
    // As the definition of OpenShift's Ingress has it.
    let letters = r"[a-zA-Z0-9\p{S}\p{L}]";
    let label = format!(r"{letters}((-?{letters}{{0,62}})?)");
    let domain = format!(r"({letters}([a-zA-Z0-9-\p{{S}}\p{{L}}]{{0,61}}{letters})?)(\.)");
    let pattern = format!(r"^({label}|({domain}){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$");
    let regex = Regex::new(&pattern, 16 << 20).unwrap();
    assert!(regex.bytes() < 512 << 10, "{}", regex.bytes());
    let mut scratch = regex.scratch();
    assert!(regex.is_match(&mut scratch, "console.example.com"));
    assert!(regex.is_match(&mut scratch, "büro.пример.испытание"));
    assert!(!regex.is_match(&mut scratch, "büro.пример.испытание."));
    assert!(!regex.is_match(&mut scratch, &"é".repeat(70)));
}

#[test]
fn what_has_no_alphabet_is_compiled_in_utf8() {
    let many: String = ('а'..='я').chain('Ā'..='ſ').map(|letter| format!("{letter}+")).collect();
    let large = format!(r"(?:{many}\pL{{90}})");
    let regex = Regex::new(&large, 16 << 20).unwrap();
    assert!(regex.alphabet.is_none() && regex.bytes() > 1 << 20);
    assert!(!regex.is_match(&mut regex.scratch(), "аб"));
    let larger = format!("(?:{large}){{4}}");
    assert_eq!(Regex::new(&larger, 16 << 20).unwrap_err(), PatternError::TooLarge);
}

proptest! {
    #[test]
    fn patterns_find_the_same_over_their_alphabets(
        pattern in r"(\\pL|\\PL|\\p\{Lu\}|[aéжK\n]|\[\^?[a-cé-ж]{1,3}\]|\||\(|\)|\*|\+|\?|\$|\^|\\b|\.|\(\?[ims]\)){1,8}",
        text in "[aBéж1 \n\u{212a}\u{1f600}-]{0,12}",
    ) {
        if translate(&pattern).is_ok() {
            let [over_alphabet, in_utf8] = both(&pattern, &text);
            prop_assert_eq!(over_alphabet, in_utf8);
        }
    }
}
