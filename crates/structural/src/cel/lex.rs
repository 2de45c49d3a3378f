//! From text to tokens.

use super::Fault;
use super::ast::Literal;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Literal(Constant),
    Ident(Box<str>),
    Symbol(&'static str),
    End,
}

/// A literal that can be compared, for the parser's sake.
#[derive(Clone, Debug)]
pub(super) struct Constant(pub(super) Literal);

impl PartialEq for Constant {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// Longest first: the first that fits is taken.
const SYMBOLS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=", "&", "|",
];

/// All tokens with their offsets; the last is `End`.
pub(super) fn lex(source: &str) -> Result<Vec<(Token, usize)>, Fault> {
    let mut lexer = Lexer { source, position: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip();
        let at = lexer.position;
        let token = lexer.token()?;
        let done = token == Token::End;
        tokens.push((token, at));
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.position..).unwrap_or_default()
    }

    fn fault(&self, at: usize, problem: &str) -> Fault {
        Fault::at(self.source, at, format_args!("Syntax error: {problem}"))
    }

    /// Skips space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
            let after = match trimmed.strip_prefix("//") {
                Some(comment) => comment.find('\n').map_or("", |end| &comment[end..]),
                None => trimmed,
            };
            self.position += rest.len() - after.len();
            if after.len() == trimmed.len() {
                return;
            }
        }
    }

    fn token(&mut self) -> Result<Token, Fault> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|digit: char| digit.is_ascii_digit())) {
            return self.number();
        }
        if let Some(token) = self.string()? {
            return Ok(token);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest
                .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
                .unwrap_or(rest.len());
            self.position += end;
            let word = &rest[..end];
            return Ok(match word {
                "true" => Token::Literal(Constant(Literal::Bool(true))),
                "false" => Token::Literal(Constant(Literal::Bool(false))),
                "null" => Token::Literal(Constant(Literal::Null)),
                "in" => Token::Symbol("in"),
                _ => Token::Ident(word.into()),
            });
        }
        if first == '`' {
            let Some(end) = rest[1..].find('`') else { return Err(self.fault(self.position, "unclosed identifier")) };
            self.position += end + 2;
            return Ok(Token::Ident(rest[1..=end].into()));
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => {
                self.position += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(self.fault(self.position, &format!("token recognition error at: '{first}'"))),
        }
    }

    fn number(&mut self) -> Result<Token, Fault> {
        let at = self.position;
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let length = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
            self.position += 2 + length;
            return self.whole(at, &hex[..length], 16);
        }
        let mut end = digits(0);
        let mut float = false;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            float = true;
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                float = true;
                end = digits(end + 1 + sign);
            }
        }
        self.position += end;
        if float {
            let number = rest[..end].parse().map_err(|_| self.fault(at, "invalid double literal"))?;
            return Ok(Token::Literal(Constant(Literal::Double(number))));
        }
        self.whole(at, &rest[..end], 10)
    }

    fn whole(&mut self, at: usize, digits: &str, radix: u32) -> Result<Token, Fault> {
        if self.rest().starts_with(['u', 'U']) {
            self.position += 1;
            let number =
                u64::from_str_radix(digits, radix).map_err(|_| Fault::at(self.source, at, "invalid uint literal"))?;
            return Ok(Token::Literal(Constant(Literal::Uint(number))));
        }
        let number = u64::from_str_radix(digits, radix).ok();
        match number.map(i64::try_from) {
            Some(Ok(number)) => Ok(Token::Literal(Constant(Literal::Int(number)))),
            // The size of the smallest number; the minus before it is the parser's.
            Some(Err(_)) if number == Some(1 << 63) => Ok(Token::Literal(Constant(Literal::Int(i64::MIN)))),
            _ => Err(Fault::at(self.source, at, "invalid int literal")),
        }
    }

    /// A string or bytes, with its prefixes.
    fn string(&mut self) -> Result<Option<Token>, Fault> {
        let at = self.position;
        let rest = self.rest();
        let prefix = rest.len() - rest.trim_start_matches(['r', 'R', 'b', 'B']).len();
        let (flags, body) = rest.split_at(prefix);
        if prefix > 2 || !body.starts_with(['"', '\'']) {
            return Ok(None);
        }
        let raw = flags.contains(['r', 'R']);
        let bytes = flags.contains(['b', 'B']);
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)).unwrap_or("\"");
        let mut content: Vec<u8> = Vec::new();
        let mut characters = body[quote.len()..].char_indices();
        while let Some((offset, character)) = characters.next() {
            let here = &body[quote.len() + offset..];
            if here.starts_with(quote) {
                self.position += prefix + quote.len() * 2 + offset;
                let token = if bytes {
                    Literal::Bytes(content.into())
                } else {
                    let text = String::from_utf8(content).map_err(|_| self.fault(at, "invalid string"))?;
                    Literal::String(text.into())
                };
                return Ok(Some(Token::Literal(Constant(token))));
            }
            if character == '\n' && quote.len() == 1 {
                break;
            }
            if character != '\\' || raw {
                content.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            let Some((_, escape)) = characters.next() else { break };
            self.escape(at, escape, bytes, &mut characters, &mut content)?;
        }
        Err(self.fault(at, "unclosed string"))
    }

    fn escape(
        &self,
        at: usize,
        escape: char,
        bytes: bool,
        characters: &mut std::str::CharIndices<'_>,
        content: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let mut number = |first: Option<char>, length: usize, radix: u32| {
            let digits: String =
                first.into_iter().chain(characters.by_ref().take(length).map(|(_, digit)| digit)).collect();
            u32::from_str_radix(&digits, radix).ok()
        };
        let code = match escape {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => Some(u32::from(escape)),
            'x' | 'X' => number(None, 2, 16),
            'u' if !bytes => number(None, 4, 16),
            'U' if !bytes => number(None, 8, 16),
            '0'..='3' => number(Some(escape), 2, 8),
            _ => None,
        };
        let code = code.ok_or_else(|| self.fault(at, "invalid escape sequence"))?;
        match (bytes, u8::try_from(code), char::from_u32(code)) {
            (true, Ok(byte), _) => content.push(byte),
            (false, _, Some(character)) => content.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => return Err(self.fault(at, "invalid escape sequence")),
        }
        Ok(())
    }
}
