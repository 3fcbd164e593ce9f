//! Which operators the parser knows and how tightly they bind.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::{Dialect, MySqlDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// MySQL's grammar with the operators and precedences of Doris.
#[derive(Debug)]
pub(super) struct DorisDialect;

/// Levels the parser may recurse; the limit of the server is checked on the parsed expression.
const PARSER_DEPTH: usize = 40_000;

/// A parser over tokens.
pub(super) fn parser(mut tokens: Vec<Token>) -> Parser<'static> {
    static DIALECT: DorisDialect = DorisDialect;
    name_functions(&mut tokens);
    enclose_null_patterns(&mut tokens);
    Parser::new(&DIALECT).with_recursion_limit(PARSER_DEPTH).with_tokens(tokens)
}

/// `TRIM` with arguments apart by a comma is a call as any other; its grammar of its own knows `FROM` only.
fn name_functions(tokens: &mut [Token]) {
    for i in 0..tokens.len() {
        let trim =
            matches!(&tokens[i], Token::Word(word) if word.keyword == Keyword::TRIM && word.quote_style.is_none());
        if !trim || tokens.get(i + 1) != Some(&Token::LParen) {
            continue;
        }
        let mut depth = 0_usize;
        for token in &tokens[i + 1..] {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::Comma if depth == 1 => {
                    tokens[i] = Token::make_word("trim", Some('`'));
                    break;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
}

/// `REGEXP NULL` and `RLIKE NULL`: the parser would take the NULL for a part of the operator.
fn enclose_null_patterns(tokens: &mut Vec<Token>) {
    let is = |token: Option<&Token>, keywords: &[Keyword]| matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && keywords.contains(&word.keyword));
    let mut i = 0;
    while i + 1 < tokens.len() {
        if is(tokens.get(i), &[Keyword::REGEXP, Keyword::RLIKE]) && is(tokens.get(i + 1), &[Keyword::NULL]) {
            tokens.insert(i + 2, Token::RParen);
            tokens.insert(i + 1, Token::LParen);
        }
        i += 1;
    }
}

/// Between OR and AND.
const XOR: u8 = 7;
/// Above `*`.
const CARET: u8 = 42;

impl Dialect for DorisDialect {
    /// What the parser does for MySQL it does here too.
    fn dialect(&self) -> TypeId {
        TypeId::of::<MySqlDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    fn supports_numeric_prefix(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn supports_lambda_functions(&self) -> bool {
        false
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::XOR => Some(Ok(XOR)),
            Token::Caret => Some(Ok(CARET)),
            _ => None,
        }
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        if !parser.parse_keyword(Keyword::DIV) {
            return None;
        }
        Some(parser.parse_subexpr(precedence).map(|right| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op: BinaryOperator::MyIntegerDivide,
            right: Box::new(right),
        }))
    }
}
