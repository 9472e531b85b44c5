"""Links by which a person without an account answers one request: in an e-mail, in a chat.

signature.py    what a link says, signed: which request, for whom, until when
form.py         the request as a form, in plain HTML
routes.py       the page behind a link
"""
