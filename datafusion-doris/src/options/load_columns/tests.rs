use proptest::prelude::*;

use super::*;

fn parts(columns: &LoadColumns) -> (Vec<&str>, Vec<(&str, &str)>) {
    let computed = columns.computed.iter().map(|(name, expr)| (name.as_str(), expr.as_str()));
    (columns.body.iter().map(String::as_str).collect(), computed.collect())
}

#[test]
fn lists_are_taken_apart() {
    type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 17] = [
        // The examples of the guide and of the stream load manual.
        (
            "dt,page,user_id,user_id=to_bitmap(user_id)",
            &["dt", "page", "user_id"],
            &[("user_id", "to_bitmap(user_id)")],
        ),
        ("a,b,tmp,c=tmp+1", &["a", "b", "tmp"], &[("c", "tmp+1")]),
        ("k,v,__DORIS_DELETE_SIGN__", &["k", "v", "__DORIS_DELETE_SIGN__"], &[]),
        ("(a,b)", &["a", "b"], &[]),
        ("( a , b = f( a ) )", &["a"], &[("b", "f( a )")]),
        // Names.
        (" `a b` , B ", &["a b", "B"], &[]),
        ("`a,b`,`c=d`,`e``f`,`(`", &["a,b", "c=d", "e`f", "("], &[]),
        ("größe,$x,a.b,_1", &["größe", "$x", "a.b", "_1"], &[]),
        // Texts with all that means something outside of them.
        ("c = if(a = 1, 'x,(\\'', concat(b, \"`\"))", &[], &[("c", "if(a = 1, 'x,(\\'', concat(b, \"`\"))")]),
        ("a,c='it''s, (',d=\"say \"\"x\"\", )\"", &["a"], &[("c", "'it''s, ('"), ("d", "\"say \"\"x\"\", )\"")]),
        ("c='\\\\',b", &["b"], &[("c", "'\\\\'")]),
        ("c='-- no comment /* # */'", &[], &[("c", "'-- no comment /* # */'")]),
        // Brackets in brackets, and of each kind.
        (
            "a,`c`=[a,1],m={'k': [1, 2]},d=f(g(a, h(b, 1)), [x, (y)])",
            &["a"],
            &[("c", "[a,1]"), ("m", "{'k': [1, 2]}"), ("d", "f(g(a, h(b, 1)), [x, (y)])")],
        ),
        // Expressions that name columns of the body, of their own and each other's.
        ("a,a=a+1", &["a"], &[("a", "a+1")]),
        ("x=`a b` + \"`\" || y <= z,y=a >= 1", &[], &[("x", "`a b` + \"`\" || y <= z"), ("y", "a >= 1")]),
        ("c=(a),d=(b)", &[], &[("c", "(a)"), ("d", "(b)")]),
        ("c=a - -1,d=a/2", &[], &[("c", "a - -1"), ("d", "a/2")]),
    ];
    for (text, body, computed) in cases {
        let columns = LoadColumns::parse(text).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(parts(&columns), (body.to_vec(), computed.to_vec()), "{text}");
    }
    let columns = LoadColumns::parse("a,b=a").unwrap();
    assert!(columns.in_body("A") && columns.is_computed("B") && !columns.in_body("b"));
}

#[test]
fn other_texts_are_refused_with_their_place() {
    for (text, why) in [
        ("", "a name is missing at character 1"),
        ("()", "a name is missing"),
        ("a,,b", "a name is missing at character 3"),
        ("a,b,", "a name is missing at character 5"),
        ("a b", "a comma or = is missing at character 3"),
        ("a+b", "a comma or = is missing at character 2"),
        ("a=", "an expression is missing at character 3"),
        ("a=,b", "an expression is missing at character 3"),
        ("=1", "a name is missing at character 1"),
        ("a==1", "a second ="),
        ("f(a", "a comma or = is missing"),
        ("f(a)", "a comma or = is missing"),
        ("ü=f(a", "a bracket is not closed at character 4"),
        ("a=f(b]", "a bracket closes that is not open at character 6"),
        ("a)", "a comma or = is missing"),
        ("a=b)", "a bracket closes that is not open at character 4"),
        ("(a),(b)", "a name is missing at character 1"),
        ("(a", "a name is missing"),
        ("'a'", "a name is missing"),
        ("`a", "a backtick is not closed at character 1"),
        ("``", "a name is empty"),
        ("a,b='x", "a quote is not closed at character 5"),
        ("a,b='x\\'", "a quote is not closed at character 5"),
        ("a,b=a--1,c", "a comment begins (write - -1 for --1) at character 6"),
        ("a,b=a /* c */", "a comment begins at character 7"),
        ("a,b=a # c", "a comment begins at character 7"),
        ("a,A", "names column 'A' twice"),
        ("x=1,X=2", "names column 'X' twice"),
    ] {
        let refused = LoadColumns::parse(text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    assert!(check("a,b\n").is_err());
}

/// A name, as it may be written.
fn name() -> impl Strategy<Value = (String, String)> {
    let word = "[a-z_$][a-z0-9_$]{0,6}".prop_map(|name: String| (name.clone(), name));
    let quoted = "[a-zA-Z0-9 ,=()'\"`ß-]{1,8}"
        .prop_filter("not blank", |name| !name.trim().is_empty())
        .prop_map(|name: String| (format!("`{}`", name.replace('`', "``")), name));
    prop_oneof![word, quoted]
}

/// An expression, in which brackets close and quotes too.
fn expression() -> impl Strategy<Value = String> {
    let text = |quote: &'static str| {
        "[a-z,()=`'\" \\[#-]{0,6}".prop_map(move |text: String| {
            format!("{quote}{}{quote}", text.replace('\\', "\\\\").replace(quote, &format!("{quote}{quote}")))
        })
    };
    let escaped = "[a-z,(']{0,4}".prop_map(|text: String| format!("'{}\\\\'", text.replace('\'', "\\'")));
    let leaf = prop_oneof!["[a-z0-9_.]{1,5}", name().prop_map(|(written, _)| written), text("'"), text("\""), escaped,];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            (list.clone(), "[a-z_]{1,4}")
                .prop_map(|(arguments, function)| format!("{function}({})", arguments.join(", "))),
            list.prop_map(|items| format!("[{}]", items.join(" ,"))),
            (inner.clone(), "(\\+|\\*|<=|=|\\|\\|)", inner)
                .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
        ]
    })
}

proptest! {
    /// What is written is read back, whatever stands between the items.
    #[test]
    fn a_list_that_is_written_is_read_back(
        items in prop::collection::vec((name(), prop::option::of(expression())), 1..8),
        blank in "[ \t]{0,2}",
        brackets in any::<bool>(),
    ) {
        let (mut written, mut body, mut computed) = (Vec::new(), Vec::new(), Vec::new());
        for ((quoted, name), expression) in items {
            let known = |names: &[String]| names.iter().any(|other: &String| other.eq_ignore_ascii_case(&name));
            match expression {
                None if !known(&body) => {
                    written.push(format!("{blank}{quoted}{blank}"));
                    body.push(name);
                }
                Some(expression) if !computed.iter().any(|(other, _): &(String, String)| other.eq_ignore_ascii_case(&name)) => {
                    written.push(format!("{blank}{quoted}{blank}={blank}{expression}{blank}"));
                    computed.push((name, expression));
                }
                _ => {}
            }
        }
        let list = written.join(",");
        let list = if brackets { format!("({list})") } else { list };
        let found = LoadColumns::parse(&list).map_err(TestCaseError::fail)?;
        prop_assert_eq!(found, LoadColumns { body, computed });
    }

    /// Any text is a list or is refused, and what is read means the same when it is written again.
    #[test]
    fn no_text_is_read_as_something_else(text in "[a-c`'\"\\\\(),=\\[\\]{} #*/-]{0,24}") {
        if let Ok(columns) = LoadColumns::parse(&text) {
            let quoted = |name: &String| format!("`{}`", name.replace('`', "``"));
            let body = columns.body.iter().map(quoted);
            let computed = columns.computed.iter().map(|(name, expression)| format!("{}={expression}", quoted(name)));
            let again = body.chain(computed).collect::<Vec<_>>().join(",");
            prop_assert_eq!(LoadColumns::parse(&again).map_err(TestCaseError::fail)?, columns);
        }
    }
}
