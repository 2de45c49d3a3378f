//! Two kinds of string enumerations.
//!
//! An **open** one lists the values this version knows and keeps any other as it came: phases, reasons and strategies
//! grow with every release, and an object with a new one must still decode and come back unchanged.
//! A **closed** one mirrors an `enum` of the CRD schema: anything else is refused, with the allowed values in the error.
//! In both, the first value is the default.

/// Declares an open enumeration: known values, and `Other` for everything else.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $(#[$first_meta:meta])* $first:ident = $first_text:literal,
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $(#[$first_meta])* #[doc = concat!("`", $first_text, "`")] #[default] $first,
            $($(#[$variant_meta])* #[doc = concat!("`", $text, "`")] $variant,)*
            /// A value this version does not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// The values this version knows.
            pub const KNOWN: &'static [&'static str] = &[$first_text, $($text),*];

            /// The value as it stands in JSON.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $first_text => Self::$first,
                    $($text => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
            }
        }

        crate::enums::text_enum!($name);
    };
}

/// Declares a closed enumeration: the listed values and no others.
macro_rules! closed_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $(#[$first_meta:meta])* $first:ident = $first_text:literal,
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $(#[$first_meta])* #[doc = concat!("`", $first_text, "`")] #[default] $first,
            $($(#[$variant_meta])* #[doc = concat!("`", $text, "`")] $variant,)*
        }

        impl $name {
            /// The allowed values.
            pub const KNOWN: &'static [&'static str] = &[$first_text, $($text),*];

            /// The value as it stands in JSON.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match String::deserialize(deserializer)?.as_str() {
                    $first_text => Ok(Self::$first),
                    $($text => Ok(Self::$variant),)*
                    other => Err(serde::de::Error::unknown_variant(other, Self::KNOWN)),
                }
            }
        }

        crate::enums::text_enum!($name, Self::KNOWN);
    };
}

/// What both kinds share; a second argument lists the values the schema allows.
macro_rules! text_enum {
    ($name:ident $(, $allowed:expr)?) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" $(, "enum": $allowed)? })
            }
        }
    };
}

pub(crate) use {closed_enum, open_enum, text_enum};
