"""Tokens of OAuth 2: JWTs that an authorization server has signed (RFC 7519, RFC 9068).

`signed_tokens` reads a token and checks its signature, `claims` decides whether it is accepted,
`key_set` reads the keys of the authorization server (RFC 7517). `trust` holds the keys, which
`sources` fetches; `refresh_rule` says when. `http` is the client for them.
"""
