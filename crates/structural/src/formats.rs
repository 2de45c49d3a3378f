//! String formats: what Kubernetes checks of `format`, and how.

mod codes;
mod net;
mod time;
mod web;

use crate::node::Type;

pub(crate) use self::time::{duration, go_duration, timestamp};
pub(crate) use self::web::{label, uri};

/// A format that is checked, under the name that the schema gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    check: Check,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Check {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    /// A width of numbers; strings are not looked at.
    Width,
}

impl Format {
    /// The format of that name for values of that type; `None` when it is not one that is checked.
    pub(crate) fn of(name: &str, kind: Option<Type>) -> Option<Self> {
        let check = match kind {
            None | Some(Type::String | Type::IntOrString) => string_check(&name.replace('-', ""))?,
            Some(Type::Integer) if matches!(name, "int32" | "int64") => Check::Width,
            Some(Type::Number) if matches!(name, "float" | "double") => Check::Width,
            Some(_) => return None,
        };
        Some(Self { check, name: name.into() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn check(&self) -> Check {
        self.check
    }

    pub(crate) fn applies_to_strings(&self) -> bool {
        self.check != Check::Width
    }

    /// Whether a text has the format.
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self.check {
            Check::BsonObjectId => codes::object_id(text),
            Check::Uri => web::uri(text),
            Check::Email => web::email(text),
            Check::Hostname => web::hostname(text),
            Check::Ipv4 => net::ipv4(text),
            Check::Ipv6 => net::ipv6(text),
            Check::Cidr => net::cidr(text),
            Check::Mac => net::mac(text),
            Check::Uuid => codes::uuid(text, None),
            Check::Uuid3 => codes::uuid(text, Some('3')),
            Check::Uuid4 => codes::uuid(text, Some('4')),
            Check::Uuid5 => codes::uuid(text, Some('5')),
            Check::Isbn => codes::isbn10(text) || codes::isbn13(text),
            Check::Isbn10 => codes::isbn10(text),
            Check::Isbn13 => codes::isbn13(text),
            Check::CreditCard => codes::credit_card(text),
            Check::Ssn => codes::ssn(text),
            Check::HexColor => codes::hex_color(text),
            Check::RgbColor => codes::rgb_color(text),
            Check::Byte => codes::base64(text),
            Check::Date => time::date(text),
            Check::Duration => duration(text).is_some(),
            Check::DateTime => time::date_time(text),
            Check::ShortName => text.len() <= 63 && web::label(text),
            Check::LongName => text.len() <= 253 && text.split('.').all(web::label),
            Check::Password | Check::Width => true,
        }
    }
}

fn string_check(name: &str) -> Option<Check> {
    Some(match name {
        "bsonobjectid" => Check::BsonObjectId,
        "uri" => Check::Uri,
        "email" => Check::Email,
        "hostname" => Check::Hostname,
        "ipv4" => Check::Ipv4,
        "ipv6" => Check::Ipv6,
        "cidr" => Check::Cidr,
        "mac" => Check::Mac,
        "uuid" => Check::Uuid,
        "uuid3" => Check::Uuid3,
        "uuid4" => Check::Uuid4,
        "uuid5" => Check::Uuid5,
        "isbn" => Check::Isbn,
        "isbn10" => Check::Isbn10,
        "isbn13" => Check::Isbn13,
        "creditcard" => Check::CreditCard,
        "ssn" => Check::Ssn,
        "hexcolor" => Check::HexColor,
        "rgbcolor" => Check::RgbColor,
        "byte" => Check::Byte,
        "password" => Check::Password,
        "date" => Check::Date,
        "duration" => Check::Duration,
        "datetime" => Check::DateTime,
        "k8sshortname" => Check::ShortName,
        "k8slongname" => Check::LongName,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::Format;
    use crate::node::Type;

    #[test]
    fn each_format_takes_what_it_should() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("ipv4", &["1.2.3.4", "010.1.1.1"], &["1.2.3", "::1", "256.1.1.1"]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "g::"]),
            ("cidr", &["10.0.0.0/8", "fd00::/8"], &["10.0.0.0", "10.0.0.0/33"]),
            ("mac", &["52:54:00:12:34:56", "52-54-00-12-34-56", "5254.0012.3456"], &["52:54:00", "52:54:00:12:34:5g"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"], &["123e4567"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-1-1"]),
            (
                "date-time",
                &["2024-02-29T23:59:59Z", "2024-02-29t01:02:03.5+02:00"],
                &["2024-02-29", "2024-02-29T24:00:00Z"],
            ),
            ("duration", &["1h30m", "-1.5s", "0", "22 ns", "3 days"], &["", "1", "x"]),
            ("email", &["a@b.c", "A B <a@b>"], &["a", "a@", "@b"]),
            ("hostname", &["a", "a-b.example.com", "1a"], &["-a", "a_b", ""]),
            ("uri", &["http://a/b", "/a", "x:y"], &["a b", "", "a"]),
            ("byte", &["", "aGk="], &["a", "!!"]),
            ("isbn10", &["0321751043", "0-321-75104-3"], &["0321751044"]),
            ("isbn13", &["978-0321751041"], &["978-0321751042"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("ssn", &["111-22-3333", "111223333"], &["11-22-3333"]),
            ("hexcolor", &["#fff", "a0b1c2"], &["#ffff"]),
            ("rgbcolor", &["rgb(255, 0,1)"], &["rgb(256,0,0)", "rgb(1,2)"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            ("k8s-short-name", &["a-1"], &["a.b", "-a", "A"]),
            ("k8s-long-name", &["a.b-c"], &["a..b", "a_b"]),
            ("password", &["", "x"], &[]),
        ];
        for (name, good, bad) in table {
            let format = Format::of(name, Some(Type::String)).unwrap();
            good.iter().for_each(|text| assert!(format.fits(text), "{name} takes {text:?}"));
            bad.iter().for_each(|text| assert!(!format.fits(text), "{name} refuses {text:?}"));
        }
    }

    #[test]
    fn unknown_formats_and_those_of_other_types_are_ignored() {
        assert_eq!(Format::of("foo", Some(Type::String)), None);
        assert_eq!(Format::of("int32", Some(Type::String)), None);
        assert_eq!(Format::of("date", Some(Type::Integer)), None);
        assert_eq!(Format::of("date", Some(Type::Object)), None);
    }
}
