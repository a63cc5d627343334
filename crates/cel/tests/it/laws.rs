//! What holds for any values.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use setpoint_cel::eval::{Context, Program};
use setpoint_cel::library::Library;
use setpoint_cel::value::Fuel;
use setpoint_cel::{Macros, Value, parse};

fn tree() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e9..1e9f64).prop_map(Json::from),
        "[a-zé]{0,6}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn run(expression: &str, variables: &[(&'static str, &Json)]) -> Option<Json> {
    let ast = parse(expression, &Macros::ALL).expect("parses");
    let program = Program::unchecked(&ast, Library::extended());
    let variables: std::collections::HashMap<String, Value<'_>> =
        variables.iter().map(|(name, tree)| ((*name).to_owned(), Value::dynamic(tree))).collect();
    program.evaluate(&mut Context::default(), &variables).ok()?.to_json()
}

proptest! {
    #[test]
    fn a_tree_seen_as_a_value_is_the_same_tree(tree in tree()) {
        prop_assert_eq!(Value::dynamic(&tree).to_json(), Some(tree));
    }

    #[test]
    fn equality_is_that_of_trees_and_symmetric(a in tree(), b in tree()) {
        let (x, y) = (Value::dynamic(&a), Value::dynamic(&b));
        let mut fuel = Fuel::new(1_000_000);
        let equal = x.equals(&y, &mut fuel).unwrap();
        prop_assert_eq!(equal, y.equals(&x, &mut fuel).unwrap());
        prop_assert!(x.equals(&x, &mut fuel).unwrap());
        if a == b {
            prop_assert!(equal);
        }
    }

    #[test]
    fn an_integer_compares_with_a_double_as_a_double(a in any::<i64>(), b in any::<i64>()) {
        let (x, y) = (json!(a), json!(b));
        let expected = json!(a < b);
        let mixed = run("x < double(y)", &[("x", &x), ("y", &y)]);
        prop_assert_eq!(mixed, Some(json!((a as f64) < b as f64)));
        prop_assert_eq!(run("x < y", &[("x", &x), ("y", &y)]), Some(expected));
    }

    #[test]
    fn arithmetic_fails_exactly_where_it_overflows(a in any::<i64>(), b in any::<i64>()) {
        let (x, y) = (json!(a), json!(b));
        let variables = [("x", &x), ("y", &y)];
        prop_assert_eq!(run("x + y", &variables), a.checked_add(b).map(Json::from));
        prop_assert_eq!(run("x - y", &variables), a.checked_sub(b).map(Json::from));
        prop_assert_eq!(run("x * y", &variables), a.checked_mul(b).map(Json::from));
        prop_assert_eq!(run("x / y", &variables), a.checked_div(b).map(Json::from));
        prop_assert_eq!(run("x % y", &variables), a.checked_rem(b).map(Json::from));
    }

    #[test]
    fn lists_sort_reverse_and_find_as_they_do_here(list in prop::collection::vec(-9i64..9, 0..12)) {
        let x = json!(list);
        let variables = [("x", &x)];
        let mut sorted = list.clone();
        sorted.sort();
        prop_assert_eq!(run("x.sort()", &variables), Some(json!(sorted)));
        prop_assert_eq!(run("x.reverse().reverse() == x", &variables), Some(json!(true)));
        prop_assert_eq!(run("x.sort().isSorted()", &variables), Some(json!(true)));
        prop_assert_eq!(run("x.sum()", &variables), Some(json!(list.iter().sum::<i64>())));
        prop_assert_eq!(run("x.filter(e, e > 0).all(e, e > 0)", &variables), Some(json!(true)));
        let kept: Vec<_> = list.iter().filter(|e| **e > 0).map(|e| e * 2).collect();
        prop_assert_eq!(run("x.map(e, e > 0, e * 2)", &variables), Some(json!(kept)));
        prop_assert_eq!(run("sets.equivalent(x, x.distinct())", &variables), Some(json!(true)));
    }

    #[test]
    fn texts_split_and_join_again(text in "[a,é]{0,12}", from in 0usize..13, to in 0usize..13) {
        let x = json!(text);
        prop_assert_eq!(run("x.split(',').join(',') == x", &[("x", &x)]), Some(json!(true)));
        let chars: Vec<char> = text.chars().collect();
        let (i, j) = (json!(from), json!(to));
        let part = chars.get(from..to).map(|part| json!(part.iter().collect::<String>()));
        prop_assert_eq!(run("x.substring(i, j)", &[("x", &x), ("i", &i), ("j", &j)]), part);
        prop_assert_eq!(run("x.size()", &[("x", &x)]), Some(json!(chars.len())));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-a-c0-9.?!(){}\\[\\],:'\"+*/%<>=&|\\\\ \\n]{0,40}") {
        if let Ok(ast) = parse(&text, &Macros::ALL) {
            // Whatever comes out.
            _ = Program::unchecked(&ast, Library::extended()).evaluate(&mut Context::default(), &());
        }
    }
}
