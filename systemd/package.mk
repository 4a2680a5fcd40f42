# Builds and installs what every package of nodectl contains: `make -f systemd/package.mk build`, then
# `install DESTDIR=...`, in a tree that systemd/package-tree has made. Called by debian/rules and by nodectl.spec.

PYTHON = /usr/bin/python3
# The directory of the command, and of the command in Python, which the former executes.
LIBRARY = /usr/lib/nodectl
# Outside Python's own path, so that no other program finds the libraries that nodectl carries.
PRIVATE = $(LIBRARY)/site-packages
# The distribution's directory of Python libraries.
SITES = /usr/lib/python3/dist-packages
UNITS = /lib/systemd/system
ZSH = /usr/share/zsh/vendor-completions

BUILT = $(CURDIR)/built
IN_BUILT = PYTHONPATH=$(BUILT)/modules $(PYTHON) -BP
COMMAND = $(IN_BUILT) -c 'from nodectl.cli.main import command; command()'
SHARE = $(DESTDIR)/usr/share

.PHONY: build install modules others shells clean

build:
	for source in $(CURDIR) $(CURDIR)/carried/*; do \
	    if [ -e $$source/setup.py ]; then \
	        (cd $$source && $(PYTHON) setup.py -q build --build-base $(BUILT) --build-lib $(BUILT)/modules \
	            --build-scripts $(BUILT)/scripts); \
	    else cp -R $$source/. $(BUILT)/modules; fi || exit 1; \
	done
	$(IN_BUILT) -m nodectl.cli.manual $(BUILT)/man

install: modules others shells

modules:
	install -d $(DESTDIR)$(PRIVATE) $(DESTDIR)/usr/include
	cp -R $(BUILT)/modules/. $(DESTDIR)$(PRIVATE)
	rm -f $(DESTDIR)$(PRIVATE)/bitarray/test_* $(DESTDIR)$(PRIVATE)/bitarray/*.h
	find $(DESTDIR)$(PRIVATE) -name '*.so*' -exec chmod 644 {} +
	ln -s ../lib/nodectl/site-packages/nodectl/include $(DESTDIR)/usr/include/nodectl
	install -D -m 755 $(BUILT)/scripts/nodectl $(DESTDIR)$(LIBRARY)/nodectl
	install -D -m 755 systemd/launcher $(DESTDIR)$(LIBRARY)/nodectl-python
	sed -i 's|@SITES@|$(PRIVATE) $(SITES)|' $(DESTDIR)$(LIBRARY)/nodectl-python
	install -d $(DESTDIR)/usr/bin
	ln -s ../lib/nodectl/nodectl $(DESTDIR)/usr/bin/nodectl

others:
	for unit in nodectld.service nodectl-steps.service nodectld.socket nodectl.slice; do \
	    install -D -m 644 systemd/$$unit $(DESTDIR)$(UNITS)/$$unit || exit 1; \
	done
	sed -i 's|/usr/local/bin/|/usr/bin/|; s|systemd/install puts|the package has|' $(DESTDIR)$(UNITS)/*.service
	install -D -m 644 systemd/nodectl.tmpfiles.conf $(DESTDIR)/usr/lib/tmpfiles.d/nodectl.conf
	install -D -m 644 systemd/nodectl.sysusers.conf $(DESTDIR)/usr/lib/sysusers.d/nodectl.conf
	install -D -m 644 -t $(DESTDIR)/etc/nodectl systemd/nodectl.toml systemd/plugstack.conf
	install -D -m 644 systemd/nodectl-spank.pc $(SHARE)/pkgconfig/nodectl-spank.pc
	sed -i 's|/usr/local/|/usr/|' $(SHARE)/pkgconfig/nodectl-spank.pc
	install -d $(SHARE)/man
	cp -R $(BUILT)/man/. $(SHARE)/man

# The files that shells read to complete words at a TAB.
shells:
	install -d $(SHARE)/bash-completion/completions $(DESTDIR)$(ZSH) $(SHARE)/fish/vendor_completions.d
	$(COMMAND) completion bash >$(SHARE)/bash-completion/completions/nodectl
	$(COMMAND) completion zsh >$(DESTDIR)$(ZSH)/_nodectl
	$(COMMAND) completion fish >$(SHARE)/fish/vendor_completions.d/nodectl.fish

clean:
	rm -rf $(BUILT)
