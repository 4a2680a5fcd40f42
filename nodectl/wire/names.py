"""The names of nodectl's Varlink interfaces, apart from the code that answers them: the client needs only these."""

NODE = "org.nodectl"
STEP = "org.nodectl.step"
