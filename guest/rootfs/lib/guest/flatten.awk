# Turns the YAML (or JSON, its subset) that people write for cloud-init into
# lines of `path<TAB>value`, so that plain shell can look things up:
#
#   users:                        users.0.name<TAB>ann
#     - name: ann          ->      users.0.keys.0<TAB>ssh-ed25519 AAAA
#       keys: [ssh-ed25519 AAAA]
#
# Backslash, newline and tab inside a value are escaped for printf '%b'.
# Anchors, tags, multi-line plain scalars and multiple documents are not
# understood: nobody needs them to describe a test guest.

{ sub(/\r$/, ""); L[++n] = $0 }

END { p = 1; node("", 0) }

function indent(s) { match(s, /^ */); return RLENGTH }

function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

function skip() { while (p <= n && L[p] ~ /^[ \t]*(#.*)?$|^---|^\.\.\.$/) p++ }

function join(path, key) { return path == "" ? key : path "." key }

function out(path, v) {
	gsub(/\\/, "\\\\", v); gsub(/\n/, "\\n", v); gsub(/\t/, "\\t", v)
	print path "\t" v
}

# Length of a leading `key:` in s, or 0 where s is not a mapping entry.
function keylen(s) {
	if (match(s, /^"[^"]*" *:( |$)/) || match(s, /^'[^']*' *:( |$)/)) return RLENGTH
	if (s ~ /^["'[{|>]/) return 0
	return match(s, /:( |$)/) ? RSTART + RLENGTH - 1 : 0
}

function node(path, min,    i, s) {
	skip()
	if (p > n || indent(L[p]) < min) return
	i = indent(L[p]); s = substr(L[p], i + 1)
	if (s ~ /^-( |$)/) list(path, i)
	else if (keylen(s)) map(path, i)
	else { p++; value(path, s, min - 1) }
}

function list(path, i,    k, s) {
	for (k = 0; skip() + (p <= n) && indent(L[p]) == i; k++) {
		s = substr(L[p], i + 1)
		if (s !~ /^-( |$)/) return
		# The rest of the line is a node of its own, two columns further in.
		L[p] = substr(L[p], 1, i) " " substr(s, 2)
		node(path "." k, i + 1)
	}
}

function map(path, i,    s, k, key) {
	while (skip() + (p <= n) && indent(L[p]) == i) {
		s = substr(L[p], i + 1); k = keylen(s)
		if (!k || s ~ /^-( |$)/) return
		key = trim(substr(s, 1, k)); sub(/ *:$/, "", key); gsub(/^["']|["']$/, "", key)
		s = trim(substr(s, k + 1)); p++
		if (s == "" || s ~ /^#/) {
			skip()
			# A list may stand at the column of its key.
			if (p <= n && indent(L[p]) == i && substr(L[p], i + 1) ~ /^-( |$)/) list(join(path, key), i)
			else node(join(path, key), i + 1)
		} else value(join(path, key), s, i)
	}
}

# A scalar or flow collection whose first line is s; i is the column of the
# entry that owns it, so that block text knows where it ends.
function value(path, s, i,    fold, col, v) {
	s = trim(s)
	if (s ~ /^[|>][-+0-9]*( *#.*)?$/) {
		fold = s ~ /^>/ ? " " : "\n"; v = ""; col = -1
		for (; p <= n; p++) {
			if (L[p] ~ /^ *$/) { v = v "\n"; continue }
			if (indent(L[p]) <= i) break
			if (col < 0) col = indent(L[p])
			v = v substr(L[p], col + 1) fold
		}
		sub(/[ \n]+$/, "", v)
		out(path, s ~ /-/ ? v : v "\n")
	} else if (s ~ /^[[{]/) {
		while (!balanced(s) && p <= n) s = s " " trim(L[p++])
		F = s; f = 1; flow(path)
	} else if (s ~ /^["']/) {
		F = s; f = 1; out(path, quoted())
	} else {
		sub(/[ \t]+#.*$/, "", s); out(path, s)
	}
}

function balanced(s,    k, c, q, depth) {
	for (k = 1; k <= length(s); k++) {
		c = substr(s, k, 1)
		if (q != "") { if (c == "\\" && q == "\"") k++; else if (c == q) q = "" }
		else if (c == "\"" || c == "'") q = c
		else if (c ~ /[[{]/) depth++
		else if (c ~ /[]}]/) depth--
	}
	return depth <= 0
}

function ws() { while (substr(F, f, 1) ~ /[ \t]/) f++ }

# The quoted string at F[f].
function quoted(    q, c, v) {
	q = substr(F, f++, 1)
	for (v = ""; f <= length(F); ) {
		c = substr(F, f++, 1)
		if (c == q) {
			if (q != "'" || substr(F, f, 1) != "'") return v
			f++
		} else if (c == "\\" && q == "\"") {
			c = substr(F, f++, 1)
			if (c == "n") c = "\n"; else if (c == "t") c = "\t"
		}
		v = v c
	}
	return v
}

function plain(stop,    v) {
	for (v = ""; f <= length(F) && substr(F, f, 1) !~ stop; f++) v = v substr(F, f, 1)
	return trim(v)
}

function flow(path,    c, k, key, from) {
	ws(); c = substr(F, f, 1)
	if (c == "[" || c == "{") {
		f++
		for (k = 0; f <= length(F); k++) {
			ws(); from = f
			if (substr(F, f, 1) ~ /[]}]/) { f++; return }
			key = k
			if (c == "{") {
				key = substr(F, f, 1) ~ /["']/ ? quoted() : plain("[:,}]")
				ws(); if (substr(F, f, 1) == ":") f++
			}
			flow(join(path, key))
			ws(); if (substr(F, f, 1) == ",") f++
			if (f == from) f++ # malformed: never stand still
		}
	} else if (c ~ /["']/) out(path, quoted())
	else out(path, plain("[],}]"))
}
