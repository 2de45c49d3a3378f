//! Tokens of service accounts: no bytes are one that this key has not signed.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use tokens::{Key, jwt};

/// Of nobody: it signs nothing but what is made up here.
static KEY: LazyLock<Key> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
    let body = STANDARD.encode(der);
    Key::from_pem(&format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")).expect("a key")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(jwt::open(text, &KEY).is_none());
    // The parts before the signature are read first: a good one lets the rest be looked at.
    if let Ok(claims) = serde_json::from_str(text) {
        let token = jwt::seal(&claims, &*KEY).expect("it signs");
        assert_eq!(jwt::open(&token, &KEY), Some(claims).filter(serde_json::Value::is_object));
    }
    drop(Key::from_pem(text));
});
