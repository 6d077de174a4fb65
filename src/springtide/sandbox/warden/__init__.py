"""The warden: a small process of its own that makes boxes, serves them and clears them away.

Everything here runs on the bare standard library, in an interpreter started with `-I -S`, so that the process stays
small and a fork of it costs a fraction of a millisecond. Nothing here may import the rest of the package except
`sandbox.wire`; heavy standard modules (typing, dataclasses, json, asyncio, subprocess) stay out for the same reason.
"""
