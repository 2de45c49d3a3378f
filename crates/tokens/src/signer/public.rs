//! Public keys as certificates have them (SubjectPublicKeyInfo in DER).

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
/// rsaEncryption, without parameters.
const RSA: [u8; 15] = [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// id-ecPublicKey on prime256v1.
const P256: [u8; 21] = [
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];

/// From modulus and exponent, as PKCS#1 writes them.
pub(super) fn rsa(key: &[u8]) -> Vec<u8> {
    info(&RSA, key)
}

/// From an uncompressed point.
pub(super) fn p256(point: &[u8]) -> Vec<u8> {
    info(&P256, point)
}

fn info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    // A bit string begins with how many bits of its last byte do not count.
    let bits = [&[0], key].concat();
    element(SEQUENCE, &[algorithm, &element(BIT_STRING, &bits)].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = length.iter().position(|byte| *byte != 0).map_or(&[0][..], |first| &length[first..]);
    let mut out = vec![tag];
    if let [short @ 0..=0x7f] = significant {
        out.push(*short);
    } else {
        // As many as the eight bytes of a length.
        out.push(0x80 | u8::try_from(significant.len()).unwrap_or(8));
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_as_short_as_it_can_be() {
        let head = |length: usize| element(SEQUENCE, &vec![0; length])[1..4].to_vec();
        assert_eq!(head(5)[..1], [5]);
        assert_eq!(head(127)[..1], [127]);
        assert_eq!(head(128)[..2], [0x81, 128]);
        assert_eq!(head(270), [0x82, 1, 14]);
    }
}
